import torch, torchvision

m = torchvision.models.segmentation.deeplabv3_resnet50(
    weights=None, weights_backbone=None, num_classes=21, aux_loss=True
).cuda()
o = torch.optim.SGD(m.parameters(), lr=0.02, momentum=0.9)
for _ in range(3):
    x = torch.randn(8, 3, 384, 384, device="cuda")
    y = torch.randint(0, 21, (8, 384, 384)).cuda()
    r = m(x)
    l = torch.nn.functional.cross_entropy(
        r["out"], y, ignore_index=255
    ) + 0.5 * torch.nn.functional.cross_entropy(r["aux"], y, ignore_index=255)
    o.zero_grad(set_to_none=True)
    l.backward()
    o.step()
