import torch, torchvision

m = torchvision.models.mobilenet_v3_large(weights=None).cuda()
o = torch.optim.AdamW(m.parameters(), lr=1e-3)
for b in (64, 96, 64):
    l = torch.nn.functional.cross_entropy(
        m(torch.randn(b, 3, 224, 224, device="cuda")), torch.randint(0, 1000, (b,), device="cuda")
    )
    o.zero_grad()
    l.backward()
    o.step()
