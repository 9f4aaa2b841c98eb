// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/step_feature.h"

namespace trireme {

StepFeature::~StepFeature() = default;

}  // namespace trireme
