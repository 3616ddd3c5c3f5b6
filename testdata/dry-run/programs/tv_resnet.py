# As torchvision's references/classification/train.py does it: AMP with fp16, SGD, an exponential moving average.
import torch
import torchvision

torch.manual_seed(0)
device = torch.device("cuda")
model = torchvision.models.resnet18(num_classes=100).to(device)
ema = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, b, n: 0.9 * a + 0.1 * b)
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)
scaler = torch.amp.GradScaler("cuda")
for step in range(6):
    image, target = torch.randn(64, 3, 176, 176).to(device), torch.randint(0, 100, (64,)).to(device)
    with torch.amp.autocast("cuda"):
        output = model(image)
        loss = criterion(output, target)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    ema.update_parameters(model)
    top = output.topk(5, 1)[1].t()
    correct = top.eq(target[None]).flatten().sum(dtype=torch.float32).item()
scheduler.step()
model.eval()
with torch.inference_mode():
    model(torch.randn(100, 3, 224, 224, device=device)).softmax(-1).max().item()
