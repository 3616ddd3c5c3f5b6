import torch
import torch.nn.functional as F

try:
    from torch_geometric.nn import GCNConv
except ImportError:  # The same layer without torch_geometric.
    class GCNConv(torch.nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.lin, self.bias = torch.nn.Linear(inputs, outputs, bias=False), torch.nn.Parameter(torch.zeros(outputs))

        def forward(self, x, edge_index):
            loops = torch.arange(x.size(0), device=x.device)
            row, col = (torch.cat([e, loops]) for e in edge_index)
            degree = torch.zeros(x.size(0), device=x.device).scatter_add_(0, col, torch.ones_like(col, dtype=x.dtype))
            weight = degree.pow(-0.5)
            weight = weight[row] * weight[col]
            x = self.lin(x)
            return torch.zeros_like(x).index_add_(0, col, x[row] * weight[:, None]) + self.bias

torch.manual_seed(0)
nodes, edges = 20_000, 200_000
x, edge_index = torch.randn(nodes, 500).cuda(), torch.randint(0, nodes, (2, edges)).cuda()
y, mask = torch.randint(0, 40, (nodes,)).cuda(), (torch.arange(nodes) % 5 > 0).cuda()


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(500, 128), GCNConv(128, 40)

    def forward(self, x, edge_index):
        return self.conv2(F.dropout(F.relu(self.conv1(x, edge_index)), 0.5, self.training), edge_index)


model = GCN().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(8):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x, edge_index)[mask], y[mask])
    loss.backward()
    optimizer.step()
    print(epoch, float(loss))
