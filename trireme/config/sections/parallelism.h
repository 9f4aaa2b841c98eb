// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trireme/config/fields.h"

namespace trireme {

/// How ranks divide the work; Config::resolve_sharding() derives the rest.
struct ParallelismSection {
  int64_t dp = 0;
  int64_t dp_shard = 0;
  int64_t dp_replicate = 0;
  int64_t tp = 1;
  int64_t pp = 1;
  int64_t cp = 1;
  std::string cp_method = "ring";
  std::string cp_balance = "head_tail";
  std::string schedule = "1f1b";
  std::optional<std::string> schedule_file;
  int64_t virtual_stages = 0;
  int64_t whole_stages = 0;
  std::optional<std::vector<int64_t>> stages;
  bool sequence_parallel = false;
  std::string partition_method = "uniform";

  void fields(Fields& f) {
    f.field({.path = "parallelism.dp",
             .min = 0,
             .max = f.kWide,
             .help = "data-parallel ranks; 0: all. A number that differs from the ranks started is "
                     "refused"},
            dp);
    f.field({.path = "parallelism.dp_shard",
             .min = 0,
             .max = f.kWide,
             .help = "neighbouring ranks over which ZeRO shards; 0: as dp_replicate allows"},
            dp_shard);
    f.field({.path = "parallelism.dp_replicate",
             .min = 0,
             .max = f.kWide,
             .help = "number of such sets of ranks: dp = dp_replicate × dp_shard; 0: derived"},
            dp_replicate);
    f.field({.path = "parallelism.tp",
             .min = 1,
             .max = f.kWide,
             .help = "neighbouring ranks that hold a part of each layer (tensor parallelism); the "
                     "rest of the ranks divide the batch"},
            tp);
    f.field({.path = "parallelism.sequence_parallel",
             .help = "with tp: norms, dropout and residuals are divided over positions too"},
            sequence_parallel);
    f.row({.path = "parallelism.tensor",
           .type = KeyType::integer,
           .min = 1,
           .alias_of = "parallelism.tp"});
    f.row({.path = "tensor_parallel.autotp_size",
           .type = KeyType::integer,
           .deepspeed = true,
           .harmless = "0",
           .alias_of = "parallelism.tp"});
    f.field({.path = "parallelism.pp",
             .min = 1,
             .max = f.kWide,
             .help = "ranks that hold different layers, through which micro-batches pass (pipeline "
                     "parallelism)"},
            pp);
    f.row({.path = "parallelism.pipeline",
           .type = KeyType::integer,
           .min = 1,
           .alias_of = "parallelism.pp"});
    f.field({.path = "parallelism.schedule",
             .choices = "gpipe 1f1b interleaved_1f1b breadth_first zb_h1 zb_h2 zb_2p zb_v "
                        "dualpipe_v",
             .help = "with pp: in which order a rank computes its micro-batches; `trireme plan "
                     "schedule` draws it"},
            schedule);
    f.field({.path = "parallelism.schedule_file",
             .help = "with pp: a table of actions in place of a schedule, as `trireme plan "
                     "schedule --csv` writes it; every rank reads it"},
            schedule_file);
    f.field({.path = "parallelism.virtual_stages",
             .min = 0,
             .max = f.kWide,
             .help = "with pp: stages of the model on each rank; 0: as many as the schedule needs"},
            virtual_stages);
    f.field({.path = "parallelism.whole_stages",
             .min = 0,
             .max = f.kWide,
             .help = "with pp and ZeRO stage 3: how many stages of a rank are gathered at a time; "
                     "others are dropped, and gathered anew for their next use. 0: each stays "
                     "whole for the step"},
            whole_stages);
    f.field({.path = "parallelism.stages",
             .min = 1,
             .max = f.kWide,
             .help = "with pp: blocks of each stage, first to last; by default as "
                     "partition_method says"},
            stages);
    f.field({.path = "parallelism.partition_method",
             .choices = "uniform measured",
             .help = "with pp: equally many blocks a stage (of a program: equal sums of "
                     "Piece::cost), or by the time that each takes, measured at start"},
            partition_method);
    f.field(
        {.path = "parallelism.cp",
         .min = 1,
         .max = f.kWide,
         .help = "ranks that hold a part of the positions of each sample (context parallelism)"},
        cp);
    f.row({.path = "parallelism.context",
           .type = KeyType::integer,
           .min = 1,
           .alias_of = "parallelism.cp"});
    f.field(
        {.path = "parallelism.cp_method",
         .choices = "ring all_gather all_to_all",
         .help = "with cp: how attention sees all positions: keys and values go round from rank "
                 "to rank, are gathered, or each rank gets all positions of some heads "
                 "(Ulysses)"},
        cp_method);
    f.field({.path = "parallelism.cp_balance",
             .choices = "head_tail none",
             .help = "with cp: which positions a rank has: a chunk from the head of a row and one "
                     "from its tail, so that all compute as much, or one range in order"},
            cp_balance);
    for (const auto& [axis, name] : {std::pair{"ep", "expert"}}) {
      const std::string path = std::string("parallelism.") + axis;
      f.row({.path = path,
             .type = KeyType::integer,
             .min = 1,
             .status = KeyStatus::refused,
             .why = "this version has data, context, tensor and pipeline parallelism",
             .harmless = "1"});
      f.row({.path = std::string("parallelism.") + name,
             .type = KeyType::integer,
             .min = 1,
             .alias_of = path});
    }
  }
};

}  // namespace trireme
