import torch, timm

m = timm.create_model("swin_tiny_patch4_window7_224", drop_path_rate=0.2).cuda()
o = torch.optim.AdamW(m.parameters(), fused=True)
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        l = torch.nn.functional.cross_entropy(
            m(torch.randn(32, 3, 224, 224, device="cuda")), torch.randint(0, 1000, (32,), device="cuda")
        )
    o.zero_grad()
    l.backward()
    o.step()
