// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trireme's public headers, in reading order: errors; ranks and what they say to each other; the
// step from its data to its optimizer; what is split over ranks; what runs all of it.
// clang-format off
#include "trireme/base/error.h"                 // what can go wrong, by what you can do next

#include "trireme/comm/run.h"                   // init_process_group, run_threads, spawn
#include "trireme/comm/group.h"                 // ranks and collectives
#include "trireme/comm/functional.h"            // collectives that autograd goes through
#include "trireme/comm/objects.h"               // typed values between ranks
#include "trireme/comm/mpi_group.h"             // a group over your MPI_Comm (needs no MPI to compile)
#include "trireme/comm/algorithms.h"            // all_reduce by a named algorithm
#include "trireme/comm/plan/tuning.h"           // which algorithm was fastest on this kind of host
#include "trireme/comm/fake/traffic.h"          // what a fake world was asked to move
#include "trireme/mesh/mesh.h"                  // ranks on named axes, a group for each
#include "trireme/mesh/placement.h"             // which axes stay inside hosts

#include "trireme/data/distributed_sampler.h"   // which samples this rank reads, for LibTorch's loader
#include "trireme/data/counted.h"               // a loop that can be saved and resumed
#include "trireme/data/source.h"                // samples by number
#include "trireme/data/batch.h"                 // what a rank does in a step
#include "trireme/data/global_batch.h"          // which samples a step has, whatever the number of ranks
#include "trireme/data/loader.h"                // batches made ahead

#include "trireme/tensor/random.h"              // RandomScope: what keyed dropout draws from
#include "trireme/layers/dropout.h"             // dropout that is the same on every world size
#include "trireme/tensor/stock_random.h"        // modules that draw from LibTorch's generator
#include "trireme/layers/sync_batch_norm.h"     // BatchNorm over the samples of all ranks
#include "trireme/tensor/tied_tensors.h"        // a module's parameters, each once
#include "trireme/tensor/autocast.h"            // mixed precision by scope
#include "trireme/tensor/recompute.h"           // activations computed again in backward

#include "trireme/grad/ddp.h"                   // gradients reduced while backward runs
#include "trireme/grad/join.h"                  // ranks with fewer batches than others
#include "trireme/grad/tuning/bucket_tuning.h"         // buckets tuned while a run trains
#include "trireme/grad/hooks/noise_scale_hook.h"      // the batch size that gradients ask for
#include "trireme/grad/hooks/cast_hook.h"             // gradients that travel in another dtype
#include "trireme/grad/compression/compression.h"           // gradients in fewer bytes, by name:
#include "trireme/grad/compression/int8_hook.h"             // … as 8-bit integers
#include "trireme/grad/compression/power_sgd_hook.h"        // … as factors of low rank
#include "trireme/grad/compression/sign_hook.h"             // … as signs
#include "trireme/grad/compression/top_k_hook.h"            // … the largest alone
#include "trireme/grad/compression/auto_hook.h"             // … by the codec that suits the link, per bucket
#include "trireme/grad/hooks/master_hook.h"           // one rank collects
#include "trireme/grad/hooks/adasum_hook.h"           // gradients added adaptively
#include "trireme/grad/hooks/local_sgd_hook.h"            // gradients that stay on their rank
#include "trireme/optim/model_averaging.h"      // local SGD, DiLoCo: ranks that average weights

#include "trireme/optim/grad_scaler.h"          // dynamic loss scale, one decision for all ranks
#include "trireme/optim/clip.h"                 // gradients clipped by norm or by value
#include "trireme/optim/optimizer.h"            // SGD, AdamW, Lion, RMSprop, Adagrad, LARS, LAMB, Adafactor
#include "trireme/optim/lr_schedule.h"          // the rate as a function of the step
#include "trireme/optim/torch_schedulers.h"     // torch.optim.lr_scheduler's: StepLR … ChainedScheduler
#include "trireme/optim/master_weights.h"       // optimizers for half-precision parameters
#include "trireme/optim/host_optimizer.h"       // state in host memory for parameters of a GPU

#include "trireme/shard/sharded_data_parallel.h"  // ZeRO-1 and 2 around any module
#include "trireme/shard/fully_shard.h"          // ZeRO-3: a block that is whole only while it computes
#include "trireme/shard/sharded_optimizer.h"    // torch::optim on shards
#include "trireme/shard/shard_file.h"           // shards of parameters in a file
#include "trireme/shard/parameter_home.h"       // parameters that are in memory while they step
#include "trireme/shard/offload/offload_optimizer.h"    // optimizer state in a file
#include "trireme/shard/offload/offload_params.h"       // tensors in a file

#include "trireme/train/engine.h"               // DeepSpeed's engine: a module and a ds_config.json
// clang-format on
