import torch, torchvision

m = torchvision.models.regnet_y_1_6gf(weights=None).cuda()
o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, nesterov=True)
for b in (48, 48, 64, 17):
    x = torch.randn(b, 3, 224, 224).cuda()
    y = torch.randint(0, 1000, (b,)).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        l = torch.nn.functional.cross_entropy(m(x), y)
    o.zero_grad()
    l.backward()
    o.step()
m.eval()
with torch.inference_mode():
    m(torch.randn(128, 3, 224, 224, device="cuda"))
