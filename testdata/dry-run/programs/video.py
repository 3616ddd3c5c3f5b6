import torch, torchvision

m = torchvision.models.video.r3d_18(weights=None, num_classes=101).cuda()
o = torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)
for _ in range(3):
    with torch.autocast("cuda", torch.float16):
        l = torch.nn.functional.cross_entropy(
            m(torch.randn(4, 3, 16, 112, 112, device="cuda")), torch.randint(0, 101, (4,), device="cuda")
        )
    o.zero_grad()
    l.backward()
    o.step()
