# As pytorch/examples' word_language_model: an LSTM with truncated backpropagation through time.
import torch
from torch import nn

torch.manual_seed(0)


class RNNModel(nn.Module):
    def __init__(self, tokens=10000, width=512, hidden=512, layers=2, dropout=0.2):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(tokens, width)
        self.rnn = nn.LSTM(width, hidden, layers, dropout=dropout)
        self.decoder = nn.Linear(hidden, tokens)

    def forward(self, data, hidden):
        output, hidden = self.rnn(self.drop(self.encoder(data)), hidden)
        return self.decoder(self.drop(output)).flatten(0, 1), hidden


model = RNNModel().cuda()
hidden = tuple(torch.zeros(2, 20, 512, device="cuda") for _ in range(2))
for step in range(6):
    data = torch.randint(0, 10000, (35 + step % 3, 20), device="cuda")
    targets = torch.randint(0, 10000, data.shape, device="cuda").flatten()
    model.zero_grad()
    hidden = tuple(h.detach() for h in hidden)
    output, hidden = model(data, hidden)
    loss = nn.functional.cross_entropy(output, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-20)
    print(step, loss.item())
model.eval()
with torch.no_grad():
    model(torch.randint(0, 10000, (35, 20), device="cuda"), hidden)
