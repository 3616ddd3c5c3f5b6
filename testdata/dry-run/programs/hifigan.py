import torch, torch.nn as nn, torch.nn.functional as F


class G(nn.Module):
    def __init__(s):
        super().__init__()
        s.pre = nn.Conv1d(80, 256, 7, padding=3)
        c = 256
        s.ups = nn.ModuleList()
        s.rs = nn.ModuleList()
        for u, k in ((8, 16), (8, 16), (4, 8)):
            s.ups.append(nn.ConvTranspose1d(c, c // 2, k, u, (k - u) // 2))
            c //= 2
            s.rs.append(
                nn.ModuleList(
                    nn.Conv1d(c, c, k, padding=d * (k - 1) // 2, dilation=d)
                    for k in (3, 7)
                    for d in (1, 3, 5)
                )
            )
        s.post = nn.Conv1d(c, 1, 7, padding=3)

    def forward(s, x):
        x = s.pre(x)
        for u, r in zip(s.ups, s.rs):
            x = u(F.leaky_relu(x, 0.1))
            for c in r:
                x = x + c(F.leaky_relu(x, 0.1))
        return torch.tanh(s.post(x))


m = G().cuda()
o = torch.optim.AdamW(m.parameters())
for _ in range(3):
    l = m(torch.randn(8, 80, 64, device="cuda")).abs().mean()
    o.zero_grad()
    l.backward()
    o.step()
