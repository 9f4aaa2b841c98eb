// SPDX-License-Identifier: Apache-2.0
#include "trireme/tensor/host_scalars.h"

namespace trireme {

void HostScalars::add(const at::Tensor& t) {
  if (!is_asynchronous(t.device())) {
    values_.push_back(t.item<double>());
    return;
  }
  const at::Tensor from = t.detach().reshape({}),
                   here = host_buffer({}, t.scalar_type(), t.device());
  copy_in_stream_order(here, from);
  last_ = DeviceStream::current(t.device()).record();
  late_.push_back({values_.size(), here});
  values_.push_back(0);
}

const std::vector<double>& HostScalars::read() {
  last_.wait_on_host();
  for (const Late& late : late_) values_[late.at] = late.here.item<double>();
  late_.clear();
  last_ = DeviceEvent();
  return values_;
}

void HostScalars::clear() {
  values_.clear();
  late_.clear();
  last_ = DeviceEvent();
}

}  // namespace trireme
