"""Trains a small transformer for three steps; arguments: BATCH FILE [LENGTH]"""
import sys, torch
batch, out = int(sys.argv[1]), sys.argv[2]
length = int(sys.argv[3]) if len(sys.argv) > 3 else 128
torch.manual_seed(0)
torch.cuda.memory._record_memory_history(stacks="python")
device = "cuda"
class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.n1, self.n2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.reshape(b, t, 8, c // 8).transpose(1, 2) for p in self.qkv(self.n1(x)).chunk(3, dim=-1))
        w = torch.softmax(q @ k.transpose(-1, -2) * (c // 8) ** -0.5, dim=-1)
        x = x + self.out((w @ v).transpose(1, 2).reshape(b, t, c))
        return x + self.down(torch.nn.functional.gelu(self.up(self.n2(x))))
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.position = torch.nn.Embedding(8000, 512), torch.nn.Embedding(2048, 512)
        self.blocks = torch.nn.ModuleList(Block(512) for _ in range(4))
        self.norm, self.head = torch.nn.LayerNorm(512), torch.nn.Linear(512, 8000)
    def forward(self, x):
        h = self.embed(x) + self.position(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for _ in range(3):
    tokens = torch.zeros(batch, length, dtype=torch.long, device=device)
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
stats = torch.cuda.memory_stats()
print(batch, length, stats["requested_bytes.all.peak"], stats["allocated_bytes.all.peak"], stats["reserved_bytes.all.peak"], flush=True)
torch.cuda.memory._dump_snapshot(out)
