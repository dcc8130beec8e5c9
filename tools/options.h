/* options.h: the command line of every subcommand: one table says who takes what. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum tool_command {
  TOOL_DEVICES = 1,
  TOOL_PROFILE = 2,
  TOOL_PLAN = 4,
  TOOL_RUN = 8,
  TOOL_BENCH = 16,
  TOOL_TUNE = 32
} tool_command;

/* Texts are borrowed from argv, but for those of a comma list. */
typedef struct tool_texts {
  char **items;
  size_t count;
} tool_texts;

typedef struct tool_sizes {
  uint64_t *items;
  size_t count;
} tool_sizes;

typedef enum tool_transport { TOOL_TRANSPORT_MPI, TOOL_TRANSPORT_SIM } tool_transport;

typedef struct tool_options {
  tool_command command;
  const char *name; /* of the subcommand */
  int argc;         /* the whole line, for starting it again under mpiexec */
  char **argv;
  bool help;

  tool_texts workload; /* what is no option */
  int64_t ranks;       /* 0 = not said */
  tool_texts devices;
  tool_sizes device_memory;
  int transport; /* tool_transport; -1 = not said */
  double deadline;
  bool json;
  const char *output, *probe, *trace;

  int dtype;       /* tsr_dtype */
  int weight_type; /* place in tool_weight_names; -1 = not said */
  int activation;  /* tsr_unary; -1 = not said */
  bool gated;
  int64_t stride[2], padding[2], dilation[2], groups; /* of conv; 0 = not said */
  double scale;
  bool backward;
  double sgd; /* 0 = not said */
  const char *input, *target;
  tool_texts weights;
  uint64_t seed;

  const char *cluster, *plan;
  int replicate;  /* tsr_replicate */
  int collective; /* tsr_algorithm */
  int wire;       /* 0 = f32, 1 = bf16, 2 = f16 */
  int64_t chunks; /* 0 = not said */
  bool explain, check;
  int64_t steps; /* 0 = not said */

  const char *shapes; /* NULL = not said */
  int types, form;    /* places in tool_types_names and tool_form_names */
  tool_texts against;
  double seconds, budget;
  int64_t cores;       /* 0 = not said */
  uint64_t cold_bytes; /* 0 = not said */
  bool cpu_time, any_panel;
  const char *candidate, *baseline;

  uint64_t given; /* bit by row of the table: what was said, whatever its value */
  char *said[64]; /* by row, where given and no flag: as typed; the last, if there are several */
} tool_options;

/* Of --dtype of bench and tune, and of --form; ended by NULL. */
extern const char *const tool_types_names[];
extern const char *const tool_form_names[];

/* Of --weights; ended by NULL. */
extern const char *const tool_weight_names[];

/* argv[1] is the subcommand. Returns 0, or says what is wrong and returns TOOL_EXIT_USAGE. */
int tool_options_parse(tool_command command, int argc, char **argv, tool_options *out);
void tool_options_free(tool_options *options);

/* The option lines of --help, on stdout. */
void tool_options_help(tool_command command);

/* The number of ranks that -n and the comma lists ask for; `fallback` if none of them says; 0, having said
 * why, if they contradict each other. */
int tool_options_ranks(const tool_options *options, int fallback);

/* What every rank has to say alike, a line for each: the command, the workload, all options but --device; of
 * a file only that there is one, since hosts may have it at different places. Release with free(); NULL = no
 * memory. */
char *tool_options_common(const tool_options *options);

#endif
