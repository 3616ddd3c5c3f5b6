import torch, torch.nn as nn

e = nn.Embedding(10000, 256).cuda()
enc = nn.GRU(256, 512, 2, batch_first=True, bidirectional=True, dropout=0.2).cuda()
dec = nn.GRU(256, 1024, 1, batch_first=True).cuda()
out = nn.Linear(1024, 10000).cuda()
ps = [p for m in (e, enc, dec, out) for p in m.parameters()]
o = torch.optim.Adam(ps)
for n in (40, 55, 33):
    x = torch.randint(0, 10000, (64, n)).cuda()
    y = torch.randint(0, 10000, (64, n)).cuda()
    _, h = enc(e(x))
    z, _ = dec(e(y), torch.cat([h[-2], h[-1]], 1)[None].contiguous())
    l = nn.functional.cross_entropy(out(z).view(-1, 10000), y.view(-1))
    o.zero_grad()
    l.backward()
    nn.utils.clip_grad_norm_(ps, 1.0)
    o.step()
