// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace torch::nn {
class Module;
}

namespace trireme {

/// Inside: torch::save of a module whose parameters have no bytes outside of run() would read
/// address 0. LibTorch has no hook there, so the module gets a child, "sharded_parameters", whose
/// save() is a UsageError that says what to do instead. While all parameters are whole (Gathered)
/// the child is not saved, and the module is as any other.
void guard_saving(torch::nn::Module& module);

}  // namespace trireme
