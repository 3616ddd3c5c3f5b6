import torch, torch.nn as nn

g = nn.Sequential(
    nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=False),
    nn.BatchNorm2d(512),
    nn.ReLU(True),
    nn.ConvTranspose2d(512, 256, 4, 2, 1, bias=False),
    nn.BatchNorm2d(256),
    nn.ReLU(True),
    nn.ConvTranspose2d(256, 128, 4, 2, 1, bias=False),
    nn.BatchNorm2d(128),
    nn.ReLU(True),
    nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(True),
    nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False),
    nn.Tanh(),
).cuda()
d = nn.Sequential(
    nn.Conv2d(3, 64, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(64, 128, 4, 2, 1, bias=False),
    nn.BatchNorm2d(128),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(128, 256, 4, 2, 1, bias=False),
    nn.BatchNorm2d(256),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(256, 512, 4, 2, 1, bias=False),
    nn.BatchNorm2d(512),
    nn.LeakyReLU(0.2, True),
    nn.Conv2d(512, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
).cuda()
c = nn.BCELoss()
og = torch.optim.Adam(g.parameters(), 2e-4, betas=(0.5, 0.999))
od = torch.optim.Adam(d.parameters(), 2e-4, betas=(0.5, 0.999))
for _ in range(4):
    real = torch.randn(256, 3, 64, 64).cuda()
    d.zero_grad()
    one = torch.full((256,), 1.0, device="cuda")
    c(d(real).view(-1), one).backward()
    fake = g(torch.randn(256, 100, 1, 1, device="cuda"))
    one.fill_(0)
    c(d(fake.detach()).view(-1), one).backward()
    od.step()
    g.zero_grad()
    one.fill_(1)
    c(d(fake).view(-1), one).backward()
    og.step()
