"""The client app."""

from flwr.app import Context

from fda_flower.clients import DomainClient, LocalTraining, SourceClient, TargetClient, serve
from fda_flower.datasets import Domain, Samples
from plugin_message_api.task import Net, load_data


def client_fn(context: Context) -> DomainClient:
    """Make the client of a partition; the last one is the target."""
    partition_id = context.node_config["partition-id"]
    num_partitions = context.node_config["num-partitions"]
    loaders = load_data(partition_id, num_partitions)
    train, test = (Samples(*(each.numpy() for each in loader.dataset.tensors)) for loader in loaders)
    client = TargetClient if partition_id == num_partitions - 1 else SourceClient
    training = LocalTraining(0.003, batch_size=5, epochs=context.run_config["local-epochs"])
    return client(Domain(str(partition_id), train, test), Net(), training, state=context.state)


app = serve(client_fn)
