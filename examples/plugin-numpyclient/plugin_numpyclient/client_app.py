"""The client app."""

from flwr.app import Context
from flwr.client import NumPyClient

from fda_flower.clients import serve
from plugin_numpyclient.task import get_weights, load_data, make_net, set_weights, test, train


class FlowerClient(NumPyClient):
    """Trains and tests on one partition."""

    def __init__(self, train_set, test_set, local_epochs, lr):
        self.net = make_net()
        self.train_set, self.test_set = train_set, test_set
        self.local_epochs, self.lr = local_epochs, lr

    def fit(self, parameters, config):
        """Train the model on local data."""
        set_weights(self.net, parameters)
        train(self.net, self.train_set, self.local_epochs, self.lr)
        return get_weights(self.net), len(self.train_set[1]), {}

    def evaluate(self, parameters, config):
        """Evaluate the model on local data."""
        set_weights(self.net, parameters)
        loss, accuracy = test(self.net, self.test_set)
        return loss, len(self.test_set[1]), {"accuracy": accuracy}


def client_fn(context: Context):
    """Make the client of a partition."""
    node, run = context.node_config, context.run_config
    train_set, test_set = load_data(node["partition-id"], node["num-partitions"])
    return FlowerClient(train_set, test_set, run["local-epochs"], run["lr"]).to_client()


app = serve(client_fn)
