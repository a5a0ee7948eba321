"""A logistic regression's arrays, which have no names: as in Flower's `quickstart-sklearn`."""

import warnings

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp import ServerApp
from projects import client_app, data, partition_of, reply_to
from sklearn.linear_model import LogisticRegression

from fda_flower.strategies import FedDA

server = ServerApp()


def train(message, context):
    x, y = (part.numpy() for part in data(partition_of(context)))
    model = LogisticRegression(max_iter=1, warm_start=True)
    model.coef_, model.intercept_ = (array.copy() for array in message.content["arrays"].to_numpy_ndarrays())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x.astype(np.float64), y[:, 0].astype(int))
    reply = reply_to(message, {})
    reply.content["arrays"] = ArrayRecord([model.coef_, model.intercept_])
    return reply


client = client_app(train)


@server.main()
def main(grid, context):
    FedDA(target="3").start(grid, ArrayRecord([np.zeros((1, 3)), np.zeros(1)]), 2)
