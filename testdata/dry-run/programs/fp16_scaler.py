# The typical mixed precision training of PyTorch's documentation, with accumulation of gradients.
import torch

torch.manual_seed(0)
sizes = [2048, 4096, 4096, 4096, 1000]
layers = [m for i, o in zip(sizes, sizes[1:]) for m in (torch.nn.Linear(i, o), torch.nn.ReLU())]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler()
for step in range(12):
    x, y = torch.randn(512, 2048, device="cuda"), torch.randint(0, 1000, (512,), device="cuda")
    with torch.autocast(device_type="cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y) / 3
    scaler.scale(loss).backward()
    if step % 3 == 2:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
print(scaler.get_scale())
