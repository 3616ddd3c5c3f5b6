import torch, torch.nn as nn

m = nn.Sequential(
    nn.Conv2d(1, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 1, 3, padding=1),
    nn.Sigmoid(),
).cuda()
o = torch.optim.Adam(m.parameters())
w = torch.hann_window(512, device="cuda")
for _ in range(3):
    x = torch.randn(8, 64000).cuda()
    s = torch.stft(x, 512, 128, window=w, return_complex=True)
    y = torch.istft(s * m(s.abs()[:, None])[:, 0], 512, 128, window=w, length=64000)
    l = (y - x).abs().mean()
    o.zero_grad()
    l.backward()
    o.step()
