// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// The optimizer and its parameters.
struct OptimizerSection {
  std::string type = "AdamW";
  double lr = 0.001;
  double weight_decay = 0;
  std::vector<double> betas = {0.9, 0.999};
  double beta3 = 0.999;
  double eps = 1e-8;
  bool adam_w_mode = true;
  int64_t freeze_step = 0;
  bool bias_correction = true;
  bool amsgrad = false;
  double momentum = 0;
  bool nesterov = false;
  double dampening = 0;
  double alpha = 0.99;
  bool centered = false;
  double lr_decay = 0;
  double initial_accumulator_value = 0;
  double max_coeff = 10;
  double min_coeff = 0.01;
  double trust_coefficient = 0.001;
  double beta2_decay = -0.8;
  double eps1 = 1e-30;
  double eps2 = 0.001;
  double d = 1;
  bool scale_parameter = true;
  std::vector<std::string> no_adapt = {"*.bias", "*norm*", "*ln*"};
  std::vector<std::string> no_decay = {"*.bias", "*norm*", "*ln*"};

  void fields(Fields& f) {
    const char* adam = "optimizer.type=Adam,AdamW";
    const char* sgd = "optimizer.type=SGD";
    const char* with_betas = "optimizer.type=Adam,AdamW,AdaMod,Lamb,Lion";
    const char* with_momentum = "optimizer.type=SGD,Lars,RMSprop";
    const char* adafactor = "optimizer.type=Adafactor";
    const char* adagrad = "optimizer.type=Adagrad";
    const char* lamb = "optimizer.type=Lamb";
    const char* rmsprop = "optimizer.type=RMSprop";
    f.field(
        {.path = "optimizer.type",
         .choices = "Adam AdamW AdaMod SGD Lamb Lars Lion Adafactor RMSprop Adagrad",
         .help = "optimizer; Adam is AdamW unless optimizer.params.adam_w_mode is false",
         .deepspeed = true,
         .why = "this version does not have this optimizer; choose Adam, AdamW, AdaMod, SGD, Lamb, "
                "Lars, Lion, Adafactor, RMSprop or Adagrad (AdamW with freeze_step and "
                "compression.type=sign resembles 1-bit Adam)",
         .refused_choices = "Muon OneBitAdam OneBitLamb ZeroOneAdam MuAdam MuAdamW MuSGD LBFGS"},
        type);
    f.field({.path = "optimizer.params.lr",
             .min = 0,
             .help = "learning rate, before the scheduler",
             .deepspeed = true},
            lr);
    f.field({.path = "optimizer.params.weight_decay",
             .min = 0,
             .help = "weight decay of parameters that match no pattern in no_decay",
             .deepspeed = true},
            weight_decay);
    f.field({.path = "optimizer.params.betas",
             .min = 0,
             .max = 1,
             .when = with_betas,
             .help = "decay rates of the two moments, each below 1 (Lion: [0.9, 0.99])",
             .deepspeed = true},
            betas);
    f.field({.path = "optimizer.params.beta3",
             .min = 0,
             .max = 1,
             .when = "optimizer.type=AdaMod",
             .help = "decay rate of the mean by which rates are bounded, below 1"},
            beta3);
    f.field(
        {.path = "optimizer.params.eps",
         .min = 0,
         .when = "optimizer.type=Adam,AdamW,AdaMod,Lamb,Lars,RMSprop,Adagrad",
         .help = "added to the root of the second moment (Adagrad: 1e-10); for Lars added to norms",
         .deepspeed = true},
        eps);
    f.field({.path = "optimizer.params.adam_w_mode",
             .when = adam,
             .help = "decay weights directly (AdamW); false: add the decay to the gradient (L2)",
             .deepspeed = true},
            adam_w_mode);
    f.field({.path = "optimizer.params.freeze_step",
             .min = 0,
             .max = 1e15,
             .when = adam,
             .help = "steps after which the second moment is frozen (as in 1-bit Adam); 0: never"},
            freeze_step);
    f.field({.path = "optimizer.params.bias_correction",
             .when = "optimizer.type=Adam,AdamW,Lamb",
             .help = "divide the moments by 1 - beta^step, so that the first steps are not small",
             .deepspeed = true},
            bias_correction);
    f.field({.path = "optimizer.params.amsgrad",
             .when = adam,
             .help = "divide by the largest second moment so far",
             .deepspeed = true},
            amsgrad);
    f.field({.path = "optimizer.params.momentum",
             .min = 0,
             .max = 1,
             .when = with_momentum,
             .help = "momentum (Lars: 0.9)",
             .deepspeed = true},
            momentum);
    f.field({.path = "optimizer.params.nesterov",
             .when = sgd,
             .help = "Nesterov's momentum",
             .deepspeed = true},
            nesterov);
    f.field({.path = "optimizer.params.dampening",
             .when = sgd,
             .help = "fraction of each gradient that is left out of the momentum",
             .deepspeed = true},
            dampening);
    f.field({.path = "optimizer.params.alpha",
             .min = 0,
             .max = 1,
             .when = rmsprop,
             .help = "decay rate of the mean square, below 1",
             .deepspeed = true},
            alpha);
    f.field({.path = "optimizer.params.centered",
             .when = rmsprop,
             .help = "divide by the standard deviation of the gradient",
             .deepspeed = true},
            centered);
    f.field({.path = "optimizer.params.lr_decay",
             .min = 0,
             .when = adagrad,
             .help = "the rate is divided by 1 + lr_decay × steps taken",
             .deepspeed = true},
            lr_decay);
    f.field({.path = "optimizer.params.initial_accumulator_value",
             .min = 0,
             .when = adagrad,
             .help = "initial value of the sums of squares",
             .deepspeed = true},
            initial_accumulator_value);
    f.field({.path = "optimizer.params.max_coeff",
             .min = 0,
             .when = lamb,
             .help = "largest trust ratio",
             .deepspeed = true},
            max_coeff);
    f.field({.path = "optimizer.params.min_coeff",
             .min = 0,
             .when = lamb,
             .help = "smallest trust ratio",
             .deepspeed = true},
            min_coeff);
    f.field({.path = "optimizer.params.trust_coefficient",
             .min = 0,
             .when = "optimizer.type=Lars",
             .help = "step of a layer as a fraction of its norm, times lr; above 0"},
            trust_coefficient);
    f.field({.path = "optimizer.params.beta2_decay",
             .max = 0,
             .when = adafactor,
             .help = "the second moment decays by 1 - step^beta2_decay; below 0",
             .deepspeed = true},
            beta2_decay);
    f.field({.path = "optimizer.params.eps1",
             .min = 0,
             .when = adafactor,
             .help = "added to squares, above 0 (the first of torch's pair eps)"},
            eps1);
    f.field({.path = "optimizer.params.eps2",
             .min = 0,
             .when = adafactor,
             .help = "smallest scale of a parameter (the second of torch's pair eps)"},
            eps2);
    f.field({.path = "optimizer.params.d",
             .min = 0,
             .when = adafactor,
             .help = "root mean square at which a step is clipped, above 0",
             .deepspeed = true},
            d);
    f.field({.path = "optimizer.params.scale_parameter",
             .when = adafactor,
             .help = "scale steps by the parameter's root mean square"},
            scale_parameter);
    f.field({.path = "optimizer.params.no_adapt",
             .when = "optimizer.type=Lamb,Lars",
             .help = "name patterns of parameters whose trust ratio is 1 (Lamb: none)"},
            no_adapt);
    f.field({.path = "optimizer.params.no_decay",
             .help = "name patterns (* and ?) of parameters without weight decay"},
            no_decay);
  }
};

}  // namespace trireme
