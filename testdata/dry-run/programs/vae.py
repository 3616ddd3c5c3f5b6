import torch, torch.nn as nn, torch.nn.functional as F


class R(nn.Module):
    def __init__(s, i, o):
        super().__init__()
        s.n1 = nn.GroupNorm(16, i)
        s.c1 = nn.Conv2d(i, o, 3, padding=1)
        s.n2 = nn.GroupNorm(16, o)
        s.c2 = nn.Conv2d(o, o, 3, padding=1)
        s.k = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(s, x):
        return s.k(x) + s.c2(F.silu(s.n2(s.c1(F.silu(s.n1(x))))))


enc = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1),
    R(64, 64),
    nn.Conv2d(64, 64, 3, 2, 1),
    R(64, 128),
    nn.Conv2d(128, 128, 3, 2, 1),
    R(128, 256),
    nn.Conv2d(256, 8, 3, padding=1),
).cuda()
dec = nn.Sequential(
    nn.Conv2d(4, 256, 3, padding=1),
    R(256, 256),
    nn.Upsample(scale_factor=2),
    R(256, 128),
    nn.Upsample(scale_factor=2),
    R(128, 64),
    nn.Conv2d(64, 3, 3, padding=1),
).cuda()
o = torch.optim.AdamW([*enc.parameters(), *dec.parameters()])
for _ in range(3):
    x = torch.randn(8, 3, 256, 256, device="cuda")
    mu, lv = enc(x).chunk(2, 1)
    z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
    l = F.mse_loss(dec(z), x) + 1e-6 * (mu**2 + lv.exp() - lv - 1).mean()
    o.zero_grad()
    l.backward()
    o.step()
