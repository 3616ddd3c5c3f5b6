import torch
from transformers import T5Config, T5ForConditionalGeneration

m = T5ForConditionalGeneration(
    T5Config(d_model=512, d_ff=1024, num_layers=6, num_heads=8, vocab_size=32128, decoder_start_token_id=0)
).cuda()
o = torch.optim.Adam(m.parameters(), lr=1e-4)
for n in (128, 200, 256):
    t = torch.randint(1, 32000, (16, n))
    d = torch.randint(1, 32000, (16, n // 2))
    l = m(input_ids=t.cuda(), attention_mask=torch.ones_like(t).cuda(), labels=d.cuda()).loss
    l.backward()
    o.step()
    o.zero_grad()
