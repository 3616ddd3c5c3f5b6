# DistributedDataParallel in a world of one, as torchrun --nproc-per-node 1 starts it.
import os

import torch
import torch.distributed as dist

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29531", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
torch.manual_seed(0)
torch.cuda.set_device(0)
free = torch.cuda.mem_get_info()[0]
dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(2048, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 2048)).cuda(), device_ids=[0])
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    loss = model(torch.randn(256, 2048, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
total = torch.ones(1, device="cuda")
dist.all_reduce(total)
gathered = [torch.zeros(1, device="cuda")]
dist.all_gather(gathered, total)
print(total.item(), loss.item())
dist.barrier()
dist.destroy_process_group()
