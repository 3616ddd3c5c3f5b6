import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        ids = torch.randint(0, 30522, (128,), generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.tensor(index % 2)}


model = BertForSequenceClassification(BertConfig(num_hidden_layers=6, num_labels=2))
arguments = TrainingArguments(
    output_dir="/tmp/hf_trainer_out", per_device_train_batch_size=16, max_steps=6, logging_steps=2, bf16=True,
    report_to=[], save_strategy="no", dataloader_num_workers=0, seed=0, eval_strategy="no", disable_tqdm=True,
)
Trainer(model=model, args=arguments, train_dataset=Sentences(), eval_dataset=Sentences()).train()
