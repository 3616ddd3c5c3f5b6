import torch
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(0)
config = LlamaConfig(hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                     num_key_value_heads=4, vocab_size=32000, eos_token_id=None, pad_token_id=0)
model = LlamaForCausalLM(config).to(torch.bfloat16).cuda().eval()
for rows, length in [(4, 200), (8, 321)]:
    tokens = torch.randint(1, 32000, (rows, length)).cuda()
    out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=40, do_sample=True, top_k=50, top_p=0.9)
    print(out.shape)
out = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=24, do_sample=False, num_beams=3)
print(out.shape)
