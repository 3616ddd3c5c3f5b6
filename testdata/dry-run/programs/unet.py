import torch
from torch import nn


def double(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.GroupNorm(8, o), nn.SiLU(),
                         nn.Conv2d(o, o, 3, padding=1, bias=False), nn.GroupNorm(8, o), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256)):
        super().__init__()
        self.down = nn.ModuleList(double(i, o) for i, o in zip((3, *widths), widths))
        self.pool = nn.MaxPool2d(2)
        up = list(reversed(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in zip(up, up[1:]))
        self.merge = nn.ModuleList(double(2 * o, o) for o in up[1:])
        self.out = nn.Conv2d(widths[0], 3, 1)

    def forward(self, x):
        skips = []
        for index, down in enumerate(self.down):
            x = down(self.pool(x) if index else x)
            skips.append(x)
        skips.pop()
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.out(x)


torch.manual_seed(0)
model = UNet().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step, side in enumerate([128, 128, 160, 96, 128]):
    images = torch.randn(8, 3, side, side, device="cuda")
    noise = torch.randn_like(images)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.mse_loss(model(images + noise).float(), noise)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
