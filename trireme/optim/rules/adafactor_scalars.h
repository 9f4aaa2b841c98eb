// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

// One step of Adafactor (Shazeer, Stern 2018) on one parameter, in numbers.
namespace trireme {

struct AdafactorScalars {
  double grad_scale = 1;
  double lr = 1e-2;
  double keep = 1;   // 1 - lr * weight_decay
  double beta2 = 0;  // 1 - t^beta2_decay
  double eps1 = 1e-30;
  double eps2 = 1e-3;
  double clip = 1;
  bool scale_parameter = true;

  /// What the direction u = gradient / sqrt(second moment) is multiplied by, from the root mean
  /// squares of the whole parameter and of u.
  double step(double parameter_rms, double u_rms) const {
    const double scale = scale_parameter ? std::max(eps2, parameter_rms) : 1;
    return lr * scale / std::max(1.0, u_rms / clip);
  }
};

}  // namespace trireme
