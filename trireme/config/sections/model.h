// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// The reference network that is trained.
struct ModelSection {
  std::string type = "gpt";
  int64_t layers = 6;
  int64_t width = 384;
  int64_t heads = 6;
  int64_t context = 256;
  double dropout = 0;
  int64_t vocab = 256;
  bool tied_head = true;
  int64_t inputs = 784;
  std::vector<int64_t> hidden = {256};
  int64_t outputs = 10;

  void fields(Fields& f) {
    const char* gpt = "model.type=gpt";
    const char* mlp = "model.type=mlp";
    f.field({.path = "model.type",
             .choices = "gpt mlp net convnet",
             .help = "byte-level GPT, multi-layer perceptron, or one of two convolutional networks "
                     "for 28×28 digits: net 5×5, convnet 3×3 with dropout"},
            type);
    f.field(
        {.path = "model.layers", .min = 1, .max = 10000, .when = gpt, .help = "transformer blocks"},
        layers);
    f.field({.path = "model.width",
             .min = 1,
             .max = f.kWide,
             .when = gpt,
             .help = "size of the residual stream; a multiple of model.heads"},
            width);
    f.field({.path = "model.heads",
             .min = 1,
             .max = f.kWide,
             .when = gpt,
             .help = "attention heads of a block"},
            heads);
    f.field({.path = "model.context",
             .min = 1,
             .max = f.kWide,
             .when = gpt,
             .help = "bytes the model sees at once"},
            context);
    f.field({.path = "model.dropout",
             .min = 0,
             .max = 0.99,
             .when = gpt,
             .help = "fraction of the activations dropped during training"},
            dropout);
    f.field({.path = "model.vocab",
             .min = 256,
             .max = f.kWide,
             .when = gpt,
             .help = "number of token values; text is bytes, so at least 256"},
            vocab);
    f.field({.path = "model.tied_head",
             .when = gpt,
             .help = "the output layer shares the weights of the embedding"},
            tied_head);
    f.field(
        {.path = "model.inputs", .min = 1, .max = f.kWide, .when = mlp, .help = "input features"},
        inputs);
    f.field({.path = "model.hidden",
             .min = 1,
             .max = f.kWide,
             .when = mlp,
             .help = "widths of the hidden layers"},
            hidden);
    f.field({.path = "model.outputs", .min = 1, .max = f.kWide, .when = mlp, .help = "classes"},
            outputs);
  }
};

}  // namespace trireme
