/* options.c: the table of options, and getopt_long over it. */
#include "options.h"

#include <float.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/context.h>
#include <tessera/dtype.h>

#include "message.h"
#include "numbers.h"

typedef struct option_row option_row;

/* Stores what text says at target; false if it is not what `expected` describes. text is NULL for a flag. */
typedef bool (*option_reader)(const option_row *row, char *text, void *target);

struct option_row {
  const char *name;
  int letter; /* short form; 0 = none */
  unsigned commands;
  const char *argument; /* NULL: a flag */
  option_reader read;
  size_t offset;
  const char *help;
  const char *expected;
  int64_t low, high;
  const char *const *names; /* of a choice */
};

enum { RANKS_MAX = 4096, PIXELS_MAX = 65536 };

static bool read_flag(const option_row *row, char *text, void *target) {
  (void)row, (void)text;
  *(bool *)target = true;
  return true;
}

static bool read_text(const option_row *row, char *text, void *target) {
  (void)row;
  *(const char **)target = text;
  return text[0] != 0;
}

static bool read_count(const option_row *row, char *text, void *target) {
  return tool_read_count(text, row->low, row->high, target);
}

static bool read_seed(const option_row *row, char *text, void *target) {
  (void)row;
  return tool_read_seed(text, target);
}

static bool read_positive(const option_row *row, char *text, void *target) {
  (void)row;
  return tool_read_positive(text, target);
}

static bool read_choice(const option_row *row, char *text, void *target) {
  for (int i = 0; row->names[i]; i++)
    if (strcmp(text, row->names[i]) == 0) return *(int *)target = i, true;
  return false;
}

static bool add_text(tool_texts *texts, char *text) {
  char **items = realloc(texts->items, (texts->count + 1) * sizeof *items);
  if (!items) return false;
  texts->items = items;
  items[texts->count++] = text;
  return true;
}

/* An option that may be given several times. */
static bool read_another(const option_row *row, char *text, void *target) {
  (void)row;
  return text[0] != 0 && add_text(target, text);
}

/* The n-th part between commas, as a copy; NULL after the last one. */
static char *copy_part(const char **rest) {
  if (!*rest) return NULL;
  size_t bytes = strcspn(*rest, ",");
  char *part = strndup(*rest, bytes);
  *rest = (*rest)[bytes] ? *rest + bytes + 1 : NULL;
  return part;
}

static void free_devices(tool_texts *devices) {
  for (size_t i = 0; i < devices->count; i++) free(devices->items[i]);
  free(devices->items);
  *devices = (tool_texts){0};
}

static bool read_devices(const option_row *row, char *text, void *target) {
  (void)row;
  free_devices(target);
  const char *rest = text;
  for (char *part; (part = copy_part(&rest));)
    if (!part[0] || !add_text(target, part)) return free(part), false;
  return true;
}

static bool add_size(tool_sizes *sizes, const char *text) {
  uint64_t *items = realloc(sizes->items, (sizes->count + 1) * sizeof *items);
  if (!items) return false;
  sizes->items = items;
  return tool_read_bytes(text, &items[sizes->count++]);
}

static bool read_sizes(const option_row *row, char *text, void *target) {
  (void)row;
  tool_sizes *sizes = target;
  sizes->count = 0;
  const char *rest = text;
  bool good = true;
  for (char *part; good && (part = copy_part(&rest)); free(part)) good = add_size(sizes, part);
  return good;
}

static bool read_bytes(const option_row *row, char *text, void *target) {
  (void)row;
  return tool_read_bytes(text, target);
}

static bool read_duration(const option_row *row, char *text, void *target) {
  (void)row;
  return tool_read_duration(text, target);
}

/* "2" for both, or "2,1". */
static bool read_pair(const option_row *row, char *text, void *target) {
  const char *rest = text;
  int64_t *pair = target;
  char *first = copy_part(&rest), *second = rest ? copy_part(&rest) : NULL;
  bool good = first && !rest && tool_read_count(first, row->low, row->high, &pair[0]) &&
              tool_read_count(second ? second : first, row->low, row->high, &pair[1]);
  free(first);
  free(second);
  return good;
}

const char *const tool_types_names[] = {"f32", "f64", "f32xf16", "f32xbf16", "f32xi8", "f16", "bf16", NULL};
const char *const tool_form_names[] = {"nn", "nt", "tn", NULL};
const char *const tool_weight_names[] = {"f16", "bf16", "i8", NULL};
static const char *const dtype_names[] = {"f32", "f64", NULL};
static const char *const transport_names[] = {"mpi", "sim", NULL};
#define REPLICATE_TEXT(name, text) text,
static const char *const replicate_names[] = {TSR_REPLICATE_LIST(REPLICATE_TEXT) NULL};
#define ALGORITHM_TEXT(name, text) text,
static const char *const algorithm_names[] = {TSR_ALGORITHM_LIST(ALGORITHM_TEXT) NULL};
static const char *const wire_names[] = {"f32", "bf16", "f16", NULL};
#define UNARY_TEXT(name, text) text,
static const char *const activation_names[] = {TSR_UNARY_LIST(UNARY_TEXT) NULL};

#define AT(field) offsetof(tool_options, field)
enum { WORK = TOOL_PLAN | TOOL_RUN, TEAM = TOOL_PROFILE | WORK, MEASURE = TOOL_BENCH | TOOL_TUNE };
enum { ALL = TOOL_DEVICES | TEAM | MEASURE };

static const option_row rows[] = {
    {"ranks", 'n', TEAM, "RANKS", read_count, AT(ranks), "members of the group, one device each",
     "a whole number from 1 to 4096", 1, RANKS_MAX, NULL},
    {"device", 'd', TEAM, "SEL[,SEL...]", read_devices, AT(devices),
     "devices: one selector for all ranks, or one for each", "selectors with commas between them", 0, 0,
     NULL},
    {"device", 'd', MEASURE, "SEL", read_devices, AT(devices), "the device, as a selector", "one selector", 0,
     0, NULL},
    {"dtype", 0, MEASURE, "TYPES", read_choice, AT(types),
     "element types: f32 (default), f64, f32xbf16, f32xf16, f32xi8, bf16, f16",
     "f32, f64, f32xf16, f32xbf16, f32xi8, f16 or bf16", 0, 0, tool_types_names},
    {"form", 0, MEASURE, "nn|nt|tn", read_choice, AT(form), "whether a or b is transposed (default nn)",
     "nn, nt or tn", 0, 0, tool_form_names},
    {"shapes", 0, MEASURE, "SHAPES", read_text, AT(shapes),
     "square (default), transformer, layers, MxNxK[,MxNxK...] or a file of lines M N K",
     "square, transformer, layers, MxNxK or a file", 0, 0, NULL},
    {"against", 0, TOOL_BENCH, "NAME[,NAME]", read_devices, AT(against),
     "yardsticks that run in turn with ours: openblas, clblast", "openblas, clblast", 0, 0, NULL},
    {"seconds", 0, MEASURE, "S", read_positive, AT(seconds), "time for each product (default 2)",
     "a number of seconds above 0", 0, 0, NULL},
    {"cores", 0, TOOL_BENCH, "N", read_count, AT(cores), "cores of this host to use (default all)",
     "a whole number from 1 to 1024", 1, 1024, NULL},
    {"cold", 0, TOOL_BENCH, "SIZE", read_bytes, AT(cold_bytes),
     "cycle through copies of b of so many bytes in all", "a size such as 512MB", 0, 0, NULL},
    {"cpu-time", 0, TOOL_BENCH, NULL, read_flag, AT(cpu_time),
     "count this process's CPU time: for one core of a busy host", NULL, 0, 0, NULL},
    {"budget", 0, TOOL_TUNE, "TIME", read_duration, AT(budget), "time for all shapes (default 60s)",
     "a time such as 60s, 5m or 1h", 0, 0, NULL},
    {"panel", 0, TOOL_TUNE, NULL, read_flag, AT(any_panel),
     "also variants that store weights in another form", NULL, 0, 0, NULL},
    {"explain", 'e', TOOL_TUNE, NULL, read_flag, AT(explain),
     "tune nothing: say which row a product M N K uses, and why", NULL, 0, 0, NULL},
    {"deadline", 0, TOOL_TUNE, "SECONDS", read_positive, AT(deadline),
     "a variant that takes longer to build and run is left out (default 20)", "a number of seconds above 0",
     0, 0, NULL},
    {"candidate", 0, TOOL_TUNE, "VARIANT", read_text, AT(candidate),
     "only measure this variant, in this process", "a variant", 0, 0, NULL},
    {"baseline", 0, TOOL_TUNE, "VARIANT", read_text, AT(baseline), "what --candidate runs in turn with",
     "a variant", 0, 0, NULL},
    {"output", 'o', TOOL_TUNE, "FILE", read_text, AT(output),
     "write the rows there instead of the user's tuning folder", "a file", 0, 0, NULL},
    {"device-memory", 'm', WORK, "SIZE[,SIZE...]", read_sizes, AT(device_memory),
     "memory to plan for: one size for all ranks, or one for each",
     "sizes such as 24GB (10^9 bytes) or 24GiB (2^30 bytes)", 0, 0, NULL},
    {"transport", 't', TEAM, "mpi|sim", read_choice, AT(transport),
     "how members talk: MPI, or all in this process", "mpi or sim", 0, 0, transport_names},
    {"dtype", 0, WORK, "f32|f64", read_choice, AT(dtype), "element type (default f32)", "f32 or f64", 0, 0,
     dtype_names},
    {"activation", 0, WORK, "NAME", read_choice, AT(activation),
     "of ffn (default gelu) and conv (default none): gelu, gelu_tanh, relu, silu",
     "gelu, gelu_tanh, relu or silu", 0, 0, activation_names},
    {"stride", 0, WORK, "ROWS[,COLUMNS]", read_pair, AT(stride), "of conv: steps of the window (default 1)",
     "one or two whole numbers from 1 to 65536", 1, PIXELS_MAX, NULL},
    {"padding", 0, WORK, "ROWS[,COLUMNS]", read_pair, AT(padding),
     "of conv: zeros on both sides of the image (default 0)", "one or two whole numbers from 0 to 65536", 0,
     PIXELS_MAX, NULL},
    {"dilation", 0, WORK, "ROWS[,COLUMNS]", read_pair, AT(dilation),
     "of conv: distance of the window's elements (default 1)", "one or two whole numbers from 1 to 65536", 1,
     PIXELS_MAX, NULL},
    {"groups", 0, WORK, "G", read_count, AT(groups),
     "of conv: channels in groups that do not mix (default 1)", "a whole number from 1 to 1099511627776", 1,
     (int64_t)1 << 40, NULL},
    {"gated", 0, WORK, NULL, read_flag, AT(gated), "ffn with a gate, (act(x wg) * (x w1)) w2", NULL, 0, 0,
     NULL},
    {"scale", 0, WORK, "S", read_positive, AT(scale), "divide --device-memory by S, and M, N, K by sqrt(S)",
     "a number above 0", 0, 0, NULL},
    {"backward", 'b', WORK, NULL, read_flag, AT(backward),
     "also the gradients of the input and all parameters", NULL, 0, 0, NULL},
    {"sgd", 0, WORK, "RATE", read_positive, AT(sgd),
     "a training step: squared error to the target, gradients, update", "a rate above 0", 0, 0, NULL},
    {"replicate", 'r', WORK, "never|small|auto", read_choice, AT(replicate),
     "which parameters may be replicated (default small: those under 1 % of all)", "never, small or auto", 0,
     0, replicate_names},
    {"chunks", 0, WORK, "N", read_count, AT(chunks),
     "chunks of products whose results are added up, 1 = none (default: as cost says)",
     "a whole number from 1 to 64", 1, 64, NULL},
    {"collective", 0, WORK, "NAME", read_choice, AT(collective),
     "how collectives are done: direct, doubling, scattered, ring, hierarchical or tree (default: the "
     "fastest)",
     "auto, direct, doubling, scattered, ring, hierarchical or tree", 0, 0, algorithm_names},
    {"wire", 0, WORK, "bf16|f16", read_choice, AT(wire),
     "type of f32 values on their way between ranks (default f32)", "f32, bf16 or f16", 0, 0, wire_names},
    {"cluster", 'c', TOOL_PLAN, "FILE", read_text, AT(cluster),
     "plan for this cluster: needs no device and no MPI", "a file", 0, 0, NULL},
    {"explain", 'e', TOOL_PLAN, NULL, read_flag, AT(explain), "say what bounds each step, and what lost",
     NULL, 0, 0, NULL},
    {"plan", 'p', TOOL_RUN, "FILE", read_text, AT(plan), "run this plan instead of making one", "a file", 0,
     0, NULL},
    {"weights", 0, WORK, "f16|bf16|i8", read_choice, AT(weight_type),
     "store weights in this type (default that of --dtype); i8 has a factor for each column",
     "f16, bf16 or i8", 0, 0, tool_weight_names},
    {"weight", 'w', WORK, "NAME=FILE:TENSOR[:T]", read_another, AT(weights),
     "contents of a value; :T = stored as [out, in]; may be repeated", "NAME=FILE:TENSOR or NAME=FILE.npy", 0,
     0, NULL},
    {"input", 'i', WORK, "FILE[:TENSOR]", read_text, AT(input), "contents of the input (a of gemm, else x)",
     "FILE.npy or FILE.safetensors:TENSOR", 0, 0, NULL},
    {"target", 0, WORK, "FILE[:TENSOR]", read_text, AT(target), "what --sgd trains towards",
     "FILE.npy or FILE.safetensors:TENSOR", 0, 0, NULL},
    {"steps", 's', TOOL_RUN, "N", read_count, AT(steps), "how many steps (default 3; 1 with --sgd)",
     "a whole number from 1 to 1000000000", 1, 1000000000, NULL},
    {"check", 0, TOOL_RUN, NULL, read_flag, AT(check), "verify the result in f64", NULL, 0, 0, NULL},
    {"seed", 0, TOOL_RUN, "N", read_seed, AT(seed), "of random contents (default 1)",
     "a whole number from 0 to 2^64 - 1", 0, 0, NULL},
    {"deadline", 0, TOOL_PROFILE | TOOL_RUN, "SECONDS", read_positive, AT(deadline),
     "a rank that is silent for so long is lost (default 20)", "a number of seconds above 0", 0, 0, NULL},
    {"output", 'o', TEAM, "FILE", read_text, AT(output),
     "write the cluster (profile), the plan (plan), the outputs as safetensors (run)", "a file", 0, 0, NULL},
    {"trace", 0, TOOL_RUN, "FILE", read_text, AT(trace),
     "write what kernels and collectives did, and when, for chrome://tracing", "a file", 0, 0, NULL},
    {"json", 'j', ALL, NULL, read_flag, AT(json), "one JSON document on stdout, nothing else", NULL, 0, 0,
     NULL},
    {"probe", 0, TOOL_DEVICES, "ICD", read_text, AT(probe), "only this ICD file, loaded in this process",
     "a file", 0, 0, NULL},
    {"help", 'h', ALL, NULL, read_flag, AT(help), "this text", NULL, 0, 0, NULL},
};
enum { ROWS = sizeof rows / sizeof rows[0] };
_Static_assert(ROWS <= 64, "bits of tool_options.given, places of tool_options.said");

/* getopt_long's two forms of the table: long options whose value is 256 + row, and letters. */
static void build_getopt(unsigned command, struct option *longs, char *letters) {
  *letters++ = ':'; /* a missing argument is told apart from an unknown option */
  for (int i = 0; i < ROWS; i++) {
    if (!(rows[i].commands & command)) continue;
    *longs++ =
        (struct option){rows[i].name, rows[i].argument ? required_argument : no_argument, NULL, 256 + i};
    if (!rows[i].letter) continue;
    *letters++ = (char)rows[i].letter;
    if (rows[i].argument) *letters++ = ':';
  }
  *longs = (struct option){0};
  *letters = 0;
}

static const option_row *find_row(int value) {
  if (value >= 256 && value < 256 + ROWS) return &rows[value - 256];
  for (int i = 0; i < ROWS; i++)
    if (rows[i].letter && rows[i].letter == value) return &rows[i];
  return NULL;
}

static int store(const option_row *row, char *text, tool_options *options) {
  options->given |= (uint64_t)1 << (row - rows);
  options->said[row - rows] = text;
  if (row->read(row, text, (char *)options + row->offset)) return 0;
  char letter[4] = "";
  if (row->letter) snprintf(letter, sizeof letter, "-%c/", row->letter);
  return tool_usage(options->name, "%s--%s is '%s', expected %s", letter, row->name, text, row->expected);
}

/* What getopt_long stopped at; its own message is switched off, because it would be a second line. */
static int refuse(const tool_options *options, int value, const char *word) {
  char letter[3] = {'-', (char)optopt, 0};
  bool short_form = optopt > 0 && optopt < 256;
  if (value == ':') return tool_usage(options->name, "%s needs a value", short_form ? letter : word);
  if (optopt >= 256)
    return tool_usage(options->name, "--%s takes no value, but has one: %s", rows[optopt - 256].name, word);
  return tool_usage(options->name, "unknown or ambiguous option %s", short_form ? letter : word);
}

static void set_defaults(tool_options *options) {
  options->transport = -1;
  options->deadline = 20;
  options->dtype = TSR_F32;
  options->activation = -1;
  options->weight_type = -1;
  options->scale = 1;
  options->seconds = 2;
  options->budget = 60;
  options->seed = 1;
  options->replicate = TSR_REPLICATE_SMALL;
}

static int parse_words(tool_options *options, int argc, char **argv) {
  struct option longs[ROWS + 1];
  char letters[2 * ROWS + 2];
  build_getopt(options->command, longs, letters);
  opterr = 0;
  optind = 1;
  for (int value; (value = getopt_long(argc, argv, letters, longs, NULL)) != -1;) {
    const option_row *row = find_row(value);
    int code = row ? store(row, optarg, options) : refuse(options, value, argv[optind - 1]);
    if (code) return code;
  }
  for (int i = optind; i < argc; i++)
    if (!add_text(&options->workload, argv[i])) return tool_usage(options->name, "out of memory");
  return 0;
}

static bool ends_with(const char *text, const char *end) {
  size_t bytes = strlen(text), end_bytes = strlen(end);
  return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

static bool was_given(const tool_options *options, const char *name) {
  for (int i = 0; i < ROWS; i++)
    if (options->given >> i & 1 && strcmp(rows[i].name, name) == 0) return true;
  return false;
}

/* What tune can do; an option that it would not look at is not what somebody meant. */
static int check_tune(const tool_options *options) {
  enum { SEARCH = 1, EXPLAIN = 2, CANDIDATE = 4 };
  static const struct {
    const char *name;
    unsigned modes;
  } limited[] = {{"shapes", SEARCH | CANDIDATE}, {"seconds", CANDIDATE}, {"baseline", CANDIDATE},
                 {"candidate", CANDIDATE},       {"budget", SEARCH},     {"panel", SEARCH},
                 {"deadline", SEARCH},           {"output", SEARCH}};
  const tool_texts *words = &options->workload;
  const unsigned mode = options->explain ? EXPLAIN : options->candidate ? CANDIDATE : SEARCH;
  for (size_t i = 0; i < sizeof limited / sizeof limited[0]; i++)
    if (was_given(options, limited[i].name) && !(limited[i].modes & mode))
      return tool_usage(options->name, "--%s has no meaning %s: leave it out", limited[i].name,
                        mode == EXPLAIN     ? "with --explain"
                        : mode == CANDIDATE ? "with --candidate"
                                            : "without --candidate");
  if (options->explain && words->count != 3)
    return tool_usage(options->name, "--explain takes 3 numbers, M N K, but got %zu", words->count);
  if (!options->explain && words->count)
    return tool_usage(options->name, "unexpected word '%s'", words->items[0]);
  return 0;
}

static int check_measure(const tool_options *options) {
  const tool_texts *words = &options->workload;
  bool bench = options->command == TOOL_BENCH;
  if (options->devices.count > 1)
    return tool_usage(options->name, "--device names %zu: one at a time is measured", options->devices.count);
  if (bench && (words->count != 1 || strcmp(words->items[0], "gemm") != 0))
    return tool_usage(options->name, "expected tessera bench gemm: products are what can be measured");
  if (bench && options->cpu_time && options->cores != 1)
    return tool_usage(options->name, "--cpu-time counts all threads: it needs --cores 1");
  return bench ? 0 : check_tune(options);
}

/* Options that a file has decided already: said beside it they would not be looked at. */
static int check_files(const tool_options *options) {
  static const struct {
    const char *file, *name, *instead;
  } decided[] = {
      {"plan", "replicate", "make a new plan with it"},
      {"plan", "chunks", "make a new plan with it"},
      {"plan", "collective", "make a new plan with it"},
      {"plan", "wire", "make a new plan with it"},
      {"cluster", "device", "the file has devices"},
      {"cluster", "transport", "planning for a file needs none"},
  };
  for (size_t i = 0; i < sizeof decided / sizeof decided[0]; i++)
    if (was_given(options, decided[i].file) && was_given(options, decided[i].name))
      return tool_usage(options->name, "--%s has no meaning with --%s: leave it out; %s", decided[i].name,
                        decided[i].file, decided[i].instead);
  return 0;
}

static int check_sgd(const tool_options *options) {
  const double rate = options->sgd, least = options->dtype == TSR_F64 ? DBL_MIN : FLT_MIN,
               most = options->dtype == TSR_F64 ? DBL_MAX : FLT_MAX;
  if (!(rate > 0) || (rate >= least && rate <= most)) return 0;
  return tool_usage(options->name, "--sgd is %g, and in %s a rate is from %.2g to %.2g", rate,
                    tsr_dtype_name((tsr_dtype)options->dtype), least, most);
}

/* What the table cannot say: options that need or exclude each other. */
static int check_together(const tool_options *options) {
  int code = check_files(options);
  if (!code) code = check_sgd(options);
  if (code) return code;
  if (options->wire && options->dtype == TSR_F64)
    return tool_usage(options->name,
                      "--wire %s is for values in f32, and --dtype is f64: leave one of them out",
                      wire_names[options->wire]);
  if (options->backward && options->sgd > 0)
    return tool_usage(options->name, "--backward and --sgd exclude each other: --sgd has its own gradients");
  if (options->weight_type >= 0 && (options->backward || options->sgd > 0 || options->dtype != TSR_F32))
    return tool_usage(options->name, "--weights %s excludes %s: narrow weights serve, train in f32",
                      tool_weight_names[options->weight_type],
                      options->backward  ? "--backward"
                      : options->sgd > 0 ? "--sgd"
                                         : "--dtype f64");
  if (options->target && !(options->sgd > 0))
    return tool_usage(options->name, "--target is what --sgd trains towards: give --sgd RATE too");
  if (options->command == TOOL_RUN && options->output && ends_with(options->output, ".npy"))
    return tool_usage(options->name,
                      "--output is '%s', but safetensors are written: choose another ending than .npy",
                      options->output);
  if (options->command & MEASURE) return check_measure(options);
  if (!(options->command & WORK) && options->workload.count)
    return tool_usage(options->name, "unexpected word '%s'", options->workload.items[0]);
  if ((options->command & WORK) && !options->workload.count)
    return tool_usage(
        options->name,
        "no workload: expected gemm M N K, linear M D_IN D_OUT, ffn M D H or conv N C H W K R S");
  return 0;
}

int tool_options_parse(tool_command command, int argc, char **argv, tool_options *out) {
  *out = (tool_options){.command = command, .name = argv[1], .argc = argc, .argv = argv};
  set_defaults(out);
  int code = parse_words(out, argc - 1, argv + 1);
  if (code || out->help) return code;
  return check_together(out);
}

void tool_options_free(tool_options *options) {
  free_devices(&options->devices);
  free_devices(&options->against);
  free(options->device_memory.items);
  free(options->workload.items);
  free(options->weights.items);
}

void tool_options_help(tool_command command) {
  for (int i = 0; i < ROWS; i++) {
    if (!(rows[i].commands & command)) continue;
    char words[64];
    char letter[6] = "    ";
    if (rows[i].letter) snprintf(letter, sizeof letter, "-%c, ", rows[i].letter);
    snprintf(words, sizeof words, "%s--%s%s%s", letter, rows[i].name, rows[i].argument ? " " : "",
             rows[i].argument ? rows[i].argument : "");
    if (strlen(words) > 34)
      printf("  %s\n  %34s  %s\n", words, "", rows[i].help);
    else
      printf("  %-34s  %s\n", words, rows[i].help);
  }
}

int tool_options_ranks(const tool_options *options, int fallback) {
  const struct {
    const char *name;
    size_t count;
  } lists[] = {{"--device", options->devices.count}, {"--device-memory", options->device_memory.count}};
  int64_t ranks = options->ranks;
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
    if (!ranks && !fallback && lists[i].count > 1) ranks = (int64_t)lists[i].count;
  if (!ranks) ranks = fallback ? fallback : 1;
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
    if (lists[i].count <= 1 || (int64_t)lists[i].count == ranks) continue;
    tool_usage(options->name, "%s names %zu, but there are %lld ranks: give one for all, or one for each",
               lists[i].name, lists[i].count, (long long)ranks);
    return 0;
  }
  return (int)ranks;
}

static bool names_file(const option_row *row) {
  return row->argument && strstr(row->argument, "FILE");
}

char *tool_options_common(const tool_options *options) {
  char *text = NULL;
  size_t bytes;
  FILE *out = open_memstream(&text, &bytes);
  if (!out) return NULL;
  fprintf(out, "tessera %s\n%s", tsr_version(), options->name);
  for (size_t i = 0; i < options->workload.count; i++) fprintf(out, " %s", options->workload.items[i]);
  fputc('\n', out);
  for (size_t i = 0; i < options->weights.count; i++)
    fprintf(out, "--weight %.*s\n", (int)strcspn(options->weights.items[i], "="), options->weights.items[i]);
  for (int i = 0; i < ROWS; i++) {
    const option_reader read = rows[i].read;
    if (!(options->given >> i & 1) || read == read_devices || read == read_another) continue;
    const char *value = rows[i].argument && !names_file(&rows[i]) ? options->said[i] : "";
    fprintf(out, "--%s%s%s\n", rows[i].name, *value ? " " : "", value);
  }
  if (fclose(out)) return free(text), NULL;
  return text;
}
