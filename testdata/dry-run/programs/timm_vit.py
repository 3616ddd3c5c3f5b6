import timm
import torch

torch.manual_seed(0)
model = timm.create_model("vit_small_patch16_224", num_classes=100).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
scaler = torch.amp.GradScaler("cuda")
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
for step in range(5):
    images, labels = torch.randn(48, 3, 224, 224).cuda(), torch.randint(0, 100, (48,)).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(images), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
model.eval()
with torch.inference_mode():
    accuracy = (model(torch.randn(64, 3, 224, 224, device="cuda")).argmax(-1) == 3).float().mean().item()
print(accuracy)
