import torch, timm

m = timm.create_model("efficientnet_b2").cuda().to(memory_format=torch.channels_last)
o = torch.optim.RMSprop(m.parameters(), lr=1e-3, momentum=0.9)
s = torch.amp.GradScaler()
for _ in range(4):
    x = torch.randn(32, 3, 260, 260, device="cuda").to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (32,), device="cuda")
    with torch.autocast("cuda", torch.float16):
        l = torch.nn.functional.cross_entropy(m(x), y, label_smoothing=0.1)
    o.zero_grad()
    s.scale(l).backward()
    s.step(o)
    s.update()
