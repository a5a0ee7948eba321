"""The client app."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from peft import get_peft_model_state_dict, set_peft_model_state_dict

from fda_flower.clients import answer_role_query, record_updates
from plugin_message_api.adapters.network import adapted
from plugin_message_api.task import load_data
from plugin_message_api.task import test as test_fn
from plugin_message_api.task import train as train_fn

app = ClientApp()
answer_role_query(app)


@app.train()
@record_updates
def train(msg: Message, context: Context) -> Message:
    """Train the model on local data."""
    model = adapted()
    set_peft_model_state_dict(model, msg.content["arrays"].to_torch_state_dict())
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    trainloader, _ = load_data(partition_id, num_partitions)
    train_loss = train_fn(
        model, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"], device
    )
    metrics = {"train_loss": train_loss, "num-examples": len(trainloader.dataset)}
    arrays = ArrayRecord(get_peft_model_state_dict(model))
    content = RecordDict({"arrays": arrays, "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context) -> Message:
    """Evaluate the model on local data."""
    model = adapted()
    set_peft_model_state_dict(model, msg.content["arrays"].to_torch_state_dict())
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    _, testloader = load_data(partition_id, num_partitions)
    eval_loss, eval_acc = test_fn(model, testloader, device)
    metrics = {"eval_loss": eval_loss, "eval_acc": eval_acc, "num-examples": len(testloader.dataset)}
    content = RecordDict({"metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)
