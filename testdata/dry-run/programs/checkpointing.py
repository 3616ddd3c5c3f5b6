import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(8)).cuda()
head = torch.nn.Linear(512, 10).cuda()
optimizer = torch.optim.Adam([*layers.parameters(), *head.parameters()])
for step in range(4):
    x = torch.randn(16, 256, 512, device="cuda")
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    head(x.mean(1)).logsumexp(-1).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
