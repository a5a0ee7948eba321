"""Adapters under peft's names, trained by a Trainer: as in Flower's `flowertune-llm`."""

import tempfile

import torch
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from projects import client_app, data, loss_of, partition_of, reply_to
from torch import nn
from transformers import Trainer, TrainingArguments

from fda_flower.clients import record_updates
from fda_flower.strategies import FedGP

server = ServerApp()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.out = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x, labels):
        outputs = self.out(torch.relu(self.hidden(x)))
        return {"loss": loss_of(outputs, labels), "logits": outputs}


def adapted():
    return get_peft_model(Net(), LoraConfig(r=2, target_modules=["hidden", "out"]))


@record_updates
def train(message, context):
    model = adapted()
    set_peft_model_state_dict(model, message.content["arrays"].to_torch_state_dict())
    x, y = data(partition_of(context))
    samples = [{"x": inputs, "labels": label} for inputs, label in zip(x, y, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=8,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
        )
        Trainer(model, arguments, train_dataset=samples).train()
    return reply_to(message, get_peft_model_state_dict(model))


client = client_app(train)


@server.main()
def main(grid, context):
    FedGP(target="3", auto=True).start(grid, ArrayRecord(get_peft_model_state_dict(adapted())), 2)
