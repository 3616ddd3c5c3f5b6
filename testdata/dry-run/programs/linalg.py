import torch

for n in (64, 300, 1000):
    a = torch.randn(n, n, device="cuda")
    s = a @ a.T + n * torch.eye(n, device="cuda")
    u, d, v = torch.linalg.svd(a)
    w, q = torch.linalg.eigh(s)
    c = torch.linalg.cholesky(s)
    x = torch.linalg.solve(s, a)
    qq, r = torch.linalg.qr(a)
    i = torch.linalg.inv(s)
p = torch.randn(512, 512, device="cuda", requires_grad=True)
(
    torch.linalg.slogdet(p @ p.T + 512 * torch.eye(512, device="cuda"))[1] + torch.linalg.svdvals(p).sum()
).backward()
