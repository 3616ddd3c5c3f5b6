import torch, torchvision

m = torchvision.models.resnet50(weights=None).cuda().eval().half()
with torch.inference_mode():
    for b in (1, 8, 32, 64, 1):
        m(torch.randn(b, 3, 224, 224, device="cuda", dtype=torch.half))
