import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

m = Wav2Vec2ForCTC(
    Wav2Vec2Config(num_hidden_layers=4, vocab_size=32, mask_time_prob=0.0, ctc_loss_reduction="mean")
).cuda()
m.freeze_feature_encoder()
o = torch.optim.AdamW([p for p in m.parameters() if p.requires_grad])
for n in (64000, 80000):
    l = m(input_values=torch.randn(4, n).cuda()).logits.float().mean()
    l.backward()
    o.step()
    o.zero_grad()
