// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Advice for errors of NCCL and CUDA.
namespace trireme::detail {

/// Says why no group over NCCL can be made. `visible`: CUDA_VISIBLE_DEVICES, or null.
inline std::string no_gpu_text(const char* visible) {
  std::string text = "the nccl backend moves tensors between GPUs, and this process sees no GPU: ";
  if (visible)
    text += "CUDA_VISIBLE_DEVICES is '" + std::string(visible) +
            "'; name GPUs that `nvidia-smi -L` shows";
  else
    text += "does `nvidia-smi` show one here?";
  return text + ". Tensors of the CPU: the local, gloo and mpi backends";
}

/// Returns advice for an error of NCCL, or "".
inline std::string nccl_advice(const std::string& error) {
  if (error.find("Duplicate GPU detected") != std::string::npos)
    return "Two ranks of one host use the same GPU, and NCCL takes a GPU for each rank: make each "
           "rank's own the current one before its first call (c10::DeviceGuard, or "
           "CUDA_VISIBLE_DEVICES from LOCAL_RANK), or start as many ranks as there are GPUs";
  return "";
}

}  // namespace trireme::detail
