// SPDX-License-Identifier: Apache-2.0
// The keys that run. DeepSpeed's keep its name, meaning and default (0.19).
#include "trireme/config/key_sections.h"

namespace trireme::detail {
namespace {

constexpr const char* kLater =
    "arrives with its kind of parallelism; this version has data parallelism";

std::vector<KeyInfo> batch_keys() {
  return {
      {.path = "train_batch_size",
       .type = KeyType::integer,
       .min = 1,
       .max = kMany,
       .help = "samples of one optimizer step over all ranks = micro × accumulation × ranks; "
               "derived when absent",
       .deepspeed = true},
      {.path = "train_micro_batch_size_per_gpu",
       .type = KeyType::integer,
       .min = 1,
       .max = kMany,
       .help = "samples of one forward and backward on one rank; derived when absent",
       .deepspeed = true},
      {.path = "gradient_accumulation_steps",
       .type = KeyType::integer,
       .min = 1,
       .max = kMany,
       .help = "micro-batches of one optimizer step on one rank; derived when absent",
       .deepspeed = true},
      {.path = "gradient_clipping",
       .type = KeyType::number,
       .default_json = "1.0",
       .min = 0,
       .help = "largest global norm of the gradients; 0: no clipping",
       .deepspeed = true},
      {.path = "steps_per_print",
       .type = KeyType::integer,
       .default_json = "10",
       .min = 1,
       .max = kMany,
       .help = "a progress line every so many optimizer steps",
       .deepspeed = true},
      {.path = "dataloader_drop_last",
       .type = KeyType::boolean,
       .deepspeed = true,
       .alias_of = "training.drop_last"},
      {.path = "gradient_allreduce_op",
       .type = KeyType::text,
       .default_json = "\"mean\"",
       .choices = "mean",
       .help = "how ranks' gradients are put together",
       .deepspeed = true,
       .why = "gradients are averaged over samples; scale the learning rate to get a sum",
       .refused_choices = "sum"},
  };
}

std::vector<KeyInfo> training_keys() {
  return {
      {.path = "training.steps",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = 1e12,
       .help = "optimizer steps; 0: until training.epochs (1000 when neither is given)"},
      {.path = "training.epochs",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = kMany,
       .help = "passes over the data; 0: until training.steps; with both, whichever ends first"},
      {.path = "training.seed",
       .type = KeyType::integer,
       .default_json = "42",
       .min = 0,
       .help = "of initialisation, dropout and shuffling"},
      {.path = "training.log_every", .type = KeyType::integer, .alias_of = "steps_per_print"},
      {.path = "training.eval_every",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = kMany,
       .help = "validation loss every so many steps; 0: at the end only"},
      {.path = "training.eval_batches",
       .type = KeyType::integer,
       .default_json = "20",
       .min = 1,
       .max = kMany,
       .help = "micro-batches of a validation on text, over all ranks (of images it has all)"},
      {.path = "training.drop_last",
       .type = KeyType::boolean,
       .default_json = "true",
       .help = "leave out the last samples of an epoch that do not fill a step; false: they are a "
               "step of their own, whose mean is over what it has (DeepSpeed's default is false)"},
      {.path = "training.find_unused_parameters",
       .type = KeyType::boolean,
       .default_json = "false",
       .help = "a parameter need not get a gradient in every step (else that ends the run with its "
               "name)"},
      {.path = "training.reproducible",
       .type = KeyType::boolean,
       .default_json = "false",
       .help = "the same bits whatever the number of ranks (powers of two)"},
      {.path = "training.leaves",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = kMany,
       .when = "training.reproducible=true",
       .help = "micro-batches of a step over all ranks, a power of two; sets the accumulation; 0: "
               "as the batch says"},
      {.path = "device",
       .type = KeyType::text,
       .default_json = "\"auto\"",
       .choices = "auto cpu",
       .help = "where training runs: on the CPU, which is also what auto takes, even beside a GPU",
       .why = "this version trains on the CPU: take cpu, or auto; in a loop of your own, "
              "DistributedDataParallel takes CUDA tensors",
       .refused_choices = "cuda"},
  };
}

std::vector<KeyInfo> run_keys() {
  std::vector<KeyInfo> keys = {
      {.path = "parallelism.dp",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = kWide,
       .help = "data-parallel ranks; 0: all. Another number than the ranks started is refused"},
      {.path = "parallelism.dp_shard",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = kWide,
       .help = "neighbouring ranks over which ZeRO shares out; 0: all that dp_replicate leaves"},
      {.path = "parallelism.dp_replicate",
       .type = KeyType::integer,
       .default_json = "0",
       .min = 0,
       .max = kWide,
       .help = "how many such sets of ranks there are: dp = dp_replicate × dp_shard; 0: what "
               "follows"},
  };
  for (const char* axis : {"tensor", "pipeline", "context", "expert"})
    keys.push_back({.path = std::string("parallelism.") + axis,
                    .type = KeyType::integer,
                    .min = 1,
                    .status = KeyStatus::refused,
                    .why = kLater,
                    .harmless = "1"});
  for (const KeyInfo& key : std::vector<KeyInfo>{
           {.path = "checkpoint.every",
 .type = KeyType::integer,
 .default_json = "0",
 .min = 0,
 .max = kMany,
 .help = "a checkpoint every so many steps; 0: at the end only"},
           {.path = "checkpoint.keep",
           .type = KeyType::integer,
           .default_json = "2",
           .min = 1,
           .max = kMany,
           .help = "how many of the last checkpoints stay"},
           {.path = "checkpoint.at_end",
           .type = KeyType::boolean,
           .default_json = "true",
           .help = "a checkpoint after the last step"},
           {.path = "checkpoint.folder",
           .type = KeyType::text,
           .help = "where; without it, the run's folder"},
           {.path = "monitor.metrics",
           .type = KeyType::text,
           .help = "a second copy of metrics.jsonl (one is always in the run's folder)"},
           {.path = "monitor.progress",
           .type = KeyType::boolean,
           .default_json = "true",
           .help = "progress on the terminal"},
           {.path = "monitor.gradient_noise_scale",
           .type = KeyType::boolean,
           .default_json = "false",
           .help = "measure the batch size at which steps and samples balance; needs 2 ranks or "
                   "micro-batches"},
           {.path = "generate.prompt",
           .type = KeyType::text,
           .default_json = "\"template <\"",
           .help = "text that generated text goes on from"},
           {.path = "generate.tokens",
           .type = KeyType::integer,
           .default_json = "400",
           .min = 1,
           .max = kMany,
           .help = "bytes to generate"},
           {.path = "generate.temperature",
           .type = KeyType::number,
           .default_json = "0.8",
           .min = 0,
           .max = 100,
           .help = "0: always the likeliest byte"},
           {.path = "generate.top_k",
           .type = KeyType::integer,
           .default_json = "0",
           .min = 0,
           .max = kWide,
           .help = "draw from the k likeliest bytes; 0: from all"},
           {.path = "comm.backend",
           .type = KeyType::text,
           .default_json = "\"local\"",
           .choices = "local gloo mpi hybrid",
           .help = "what carries collectives between ranks; hybrid: local inside each host, "
                   "comm.across between hosts"},
           {.path = "comm.across",
           .type = KeyType::text,
           .default_json = "\"gloo\"",
           .choices = "gloo mpi",
           .when = "comm.backend=hybrid",
           .help = "what carries collectives between hosts"},
           {.path = "comm.check",
           .type = KeyType::text,
           .default_json = "\"hash\"",
           .choices = "hash each off",
           .when = "comm.backend=gloo,mpi,hybrid",
           .help = "how ranks find out that they call different things: each: before every "
                   "collective; hash: after every 64, and when one waits (local always compares)"},
           {.path = "comm.timeout_s",
           .type = KeyType::number,
           .default_json = "600.0",
           .min = 0.001,
           .max = kMany,
           .help = "deadline of a collective, in seconds"},
           {.path = "comm.bucket_mb",
           .type = KeyType::number,
           .default_json = "0.0",
           .min = 0,
           .max = 1e5,
           .help = "size of a gradient bucket in MiB; 0: what suits the backend"},
       })
    keys.push_back(key);
  return keys;
}

}  // namespace

std::vector<KeyInfo> supported_keys() {
  std::vector<KeyInfo> keys;
  for (auto& part : {model_keys(), data_keys(), batch_keys(), training_keys(), optimizer_keys(),
                     scheduler_keys(), run_keys(), compression_keys(), averaging_keys()})
    keys.insert(keys.end(), part.begin(), part.end());
  return keys;
}

}  // namespace trireme::detail