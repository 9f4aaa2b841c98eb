// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trireme's public headers, in reading order: errors; ranks and the calls between them; data; what
// a module needs; gradients, optimizers and sharding; and the engine and the trainer that combine
// all of it.
// clang-format off
#include "trireme/base/error.h"                           // errors, by what you can do next
#include "trireme/base/events/progress_marks.h"           // tells the launcher how far this rank is

#include "trireme/comm/start/run.h"                       // init_process_group, run_threads, spawn
#include "trireme/comm/group.h"                           // groups of ranks and their collectives
#include "trireme/comm/functional.h"                      // differentiable collectives
#include "trireme/comm/objects.h"                         // collectives for typed C++ values
#include "trireme/comm/mpi_group.h"                       // a group made from your MPI_Comm
#include "trireme/comm/algorithms.h"                      // all_reduce by a named algorithm
#include "trireme/comm/plan/tuning.h"                     // algorithms chosen by measurement
#include "trireme/comm/fake/traffic.h"                    // the traffic of a simulated world
#include "trireme/rpc/codec/tensor.h"                     // tensors in remote calls
#include "trireme/rpc/rpc.h"                              // calls of functions on other workers
#include "trireme/rpc/autograd/context.h"                 // backward through remote calls
#include "trireme/rpc/training/distributed_optimizer.h"   // steps on all workers that own parameters
#include "trireme/rpc/training/optimizer_host.h"          // optimizers that others have made for parameters there
#include "trireme/rpc/training/remote_module.h"           // modules that live at another worker
#include "trireme/rpc/actor/actor.h"                      // objects there that take one message at a time
#include "trireme/mesh/mesh.h"                            // ranks on named axes, with their groups
#include "trireme/mesh/placement.h"                       // which axes stay within hosts

#include "trireme/data/distributed_sampler.h"             // the samples of this rank in an epoch
#include "trireme/data/counted.h"                         // a data loop that can be resumed
#include "trireme/data/weighted_sampler.h"                // rare samples drawn more often
#include "trireme/data/subset.h"                          // parts of data sets, random splits
#include "trireme/data/augment.h"                         // images cropped, flipped and rotated
#include "trireme/data/source.h"                          // the interface of data sets
#include "trireme/data/batch.h"                           // the samples of one rank in one step
#include "trireme/data/source_dataset.h"                  // a data source for LibTorch's loader
#include "trireme/data/sources/digits.h"                  // drawn digits that stand for MNIST
#include "trireme/data/sources/idx.h"                     // the files of MNIST
#include "trireme/data/global_batch.h"                    // a step's samples on any number of ranks
#include "trireme/data/loader.h"                          // batches prepared ahead of time
#include "trireme/data/text/word_piece.h"                 // BERT's tokenizer
#include "trireme/data/text/natural_questions.h"          // questions of Natural Questions
#include "trireme/data/text/squad.h"                      // questions and scores of SQuAD
#include "trireme/data/text/question_chunks.h"            // questions as padded samples
#include "trireme/data/sources/question_source.h"         // questions as micro-batches; answers

#include "trireme/tensor/random/random.h"                 // random tensors as functions of a key
#include "trireme/layers/attention.h"                     // attention over ranges of places
#include "trireme/layers/documents.h"                     // rows that hold several documents
#include "trireme/layers/dropout.h"                       // the same dropout on any number of ranks
#include "trireme/tensor/random/stock_random.h"           // finds uses of LibTorch's own generator
#include "trireme/layers/sync_batch_norm.h"               // BatchNorm over the samples of all ranks
#include "trireme/tensor/parameter_layout.h"              // which part of a parameter a rank has
#include "trireme/tensor/random/random_boxes.h"           // parts of random tensors
#include "trireme/layers/tensor_parallel/block.h"         // transformer blocks divided over ranks
#include "trireme/layers/tensor_parallel/embedding.h"     // embeddings divided by vocabulary
#include "trireme/layers/tensor_parallel/cross_entropy.h" // the loss of divided logits
#include "trireme/layers/tensor_parallel/gradients.h"     // their gradients in your own loop
#include "trireme/layers/tensor_parallel/regions.h"       // layers of your own divided over ranks
#include "trireme/layers/context_parallel/context_parallel.h" // positions divided over ranks
#include "trireme/models/init.h"                          // how the reference networks begin
#include "trireme/models/bert.h"                          // BERT's encoder, and heads for answers
#include "trireme/models/question_losses.h"               // losses as sums, and what they count
#include "trireme/pipeline/pipeline.h"                    // stages of a network on different ranks
#include "trireme/tensor/tied_tensors.h"                  // a module's parameters, each listed once
#include "trireme/tensor/module_summary.h"                // a module's parts and parameters
#include "trireme/tensor/module_state.h"                  // a module's state for a checkpoint
#include "trireme/tensor/layout_state.h"                  // state of divided layers
#include "trireme/tensor/autocast.h"                      // mixed precision within a scope
#include "trireme/tensor/recompute/recompute.h"           // activations recomputed in backward

#include "trireme/grad/ddp.h"                             // data-parallel training of any module
#include "trireme/grad/join.h"                            // ranks with fewer batches than others
#include "trireme/grad/tuning/bucket_tuning.h"            // bucket sizes tuned during training
#include "trireme/grad/hooks/noise_scale_hook.h"          // estimates the useful batch size
#include "trireme/grad/hooks/cast_hook.h"                 // gradients reduced in another dtype
#include "trireme/grad/compression/compression.h"         // gradient compression selected by name
#include "trireme/grad/compression/int8_hook.h"           // gradients sent as 8-bit integers
#include "trireme/grad/compression/power_sgd_hook.h"      // gradients sent as low-rank factors
#include "trireme/grad/compression/sign_hook.h"           // gradients sent as their signs
#include "trireme/grad/compression/top_k_hook.h"          // gradients sent as their top-k elements
#include "trireme/grad/compression/auto_hook.h"           // compression chosen for each bucket
#include "trireme/grad/hooks/master_hook.h"               // gradients collected on one rank
#include "trireme/grad/hooks/adasum_hook.h"               // gradients combined by Adasum
#include "trireme/grad/hooks/local_sgd_hook.h"            // gradients that stay on their rank
#include "trireme/optim/averaging/model_averaging.h"      // local SGD and DiLoCo: averaged weights

#include "trireme/optim/grad_scaler.h"                    // loss scaling, decided for all ranks
#include "trireme/optim/clip.h"                           // gradient clipping by norm or by value
#include "trireme/optim/optimizer.h"                      // SGD, AdamW, LAMB and six others
#include "trireme/optim/rows/row_optimizer.h"              // steps over touched rows of a table
#include "trireme/optim/schedule/lr_schedule.h"           // the learning rate of each step
#include "trireme/optim/schedule/torch_schedulers.h"      // torch.optim.lr_scheduler's schedules
#include "trireme/optim/torch_optimizer_state.h"          // a torch::optim optimizer's state
#include "trireme/optim/master_weights.h"                 // optimizers for half-precision weights
#include "trireme/optim/host_optimizer.h"                 // optimizers that step in host memory

#include "trireme/shard/sharded_data_parallel.h"          // ZeRO stages 1 and 2 for any module
#include "trireme/shard/fully_shard.h"                    // ZeRO stage 3, block by block
#include "trireme/shard/sharded_optimizer.h"              // torch::optim optimizers on shards
#include "trireme/shard/divided_shards.h"                 // ZeRO beside tensor parallelism
#include "trireme/shard/shard_file.h"                     // parameter shards kept in a file
#include "trireme/shard/parameter_pager.h"                // parameters in memory only during a step
#include "trireme/shard/offload/offload_optimizer.h"      // optimizer state kept in a file
#include "trireme/shard/offload/offload_params.h"         // tensors kept in a file

#include "trireme/checkpoint/own_state.h"                 // save and load in your own loop
#include "trireme/checkpoint/async_saver.h"               // saves while training continues
#include "trireme/checkpoint/load_weights.h"              // weights alone, renamed or incomplete
#include "trireme/checkpoint/steps/run_folder/folders.h"  // the steps of a run folder

#include "trireme/rpc/server/parameter_server.h"          // parameters that live at servers
#include "trireme/rpc/server/parameter_client.h"          // workers that train them
#include "trireme/rpc/server/sharded_embedding.h"         // embeddings divided over servers

#include "trireme/train/in_place/elastic.h"               // your own loop while ranks come and go
#include "trireme/train/setup/model_mesh.h"               // the ranks as a configuration says
#include "trireme/train/engine.h"                         // DeepSpeed's engine for a ds_config.json
#include "trireme/train/train_main.h"                     // a program with all of `trireme train`
#include "trireme/train/program/chain_program.h"          // such a program, as a pipeline too
// clang-format on
