import torch
from transformers import LlamaConfig, LlamaForCausalLM

m = (
    LlamaForCausalLM(
        LlamaConfig(
            hidden_size=1024,
            intermediate_size=2816,
            num_hidden_layers=8,
            num_attention_heads=16,
            num_key_value_heads=4,
            vocab_size=32000,
            use_cache=False,
        )
    )
    .cuda()
    .to(torch.bfloat16)
)
m.gradient_checkpointing_enable()
o = torch.optim.AdamW(m.parameters(), lr=1e-4)
for n in (512, 1024, 768, 1024):
    t = torch.randint(0, 32000, (4, n), device="cuda")
    l = m(input_ids=t, labels=t).loss
    l.backward()
    torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    o.step()
    o.zero_grad()
