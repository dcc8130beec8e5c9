/* main.c: the program tessera: finds the subcommand and hands over. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tessera/tessera.h>

#include "cache.h"
#include "commands.h"
#include "launch.h"
#include "message.h"
#include "stop.h"
#include "team.h"

static const struct {
  const char *name;
  tool_command command;
  int (*run)(const tool_options *options);
  const char *synopsis, *summary;
} commands[] = {
    {"devices", TOOL_DEVICES, tool_command_devices, "[OPTION...]",
     "lists the OpenCL devices of this machine, and which backend takes them"},
    {"profile", TOOL_PROFILE, tool_command_profile, "[OPTION...]",
     "measures the devices of a group and the links between them"},
    {"plan", TOOL_PLAN, tool_command_plan, "WORKLOAD [OPTION...]",
     "finds and explains the fastest way to split a workload that fits"},
    {"run", TOOL_RUN, tool_command_run, "WORKLOAD [OPTION...]",
     "plans a workload, runs it, checks and reports"},
    {"bench", TOOL_BENCH, tool_command_bench, "gemm [OPTION...]",
     "measures products on one device, against other libraries"},
    {"tune", TOOL_TUNE, tool_command_tune, "[OPTION...] | --explain M N K",
     "searches faster kernel parameters for a device, and keeps them"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const char workloads[] =
    "\nWORKLOAD is one of\n"
    "  gemm M N K              c[M,N] = a[M,K] b[K,N]; b is the weight\n"
    "  linear M D_IN D_OUT     y = x w + bias\n"
    "  ffn M D H               y = act(x w1 + b1) w2 + b2\n"
    "  conv N C H W K R S      N images of C channels, H by W; K output channels, R by S\n";

static int print_help(void) {
  printf("usage: tessera COMMAND [OPTION...]\n\n");
  for (int i = 0; i < COMMANDS; i++) printf("  %-9s %s\n", commands[i].name, commands[i].summary);
  printf("\n  --help     this text; tessera COMMAND --help says more\n  --version  the version\n");
  return TOOL_EXIT_DONE;
}

static int print_command_help(int index) {
  printf("usage: tessera %s %s\n%s\n", commands[index].name, commands[index].synopsis,
         commands[index].summary);
  if (commands[index].command & (TOOL_PLAN | TOOL_RUN)) fputs(workloads, stdout);
  printf("\n");
  tool_options_help(commands[index].command);
  printf("\nExit code: 0 done, 1 failed or infeasible, 2 wrong usage. See man tessera-%s.\n",
         commands[index].name);
  return TOOL_EXIT_DONE;
}

static int print_version(void) {
  printf("tessera %s\n", tsr_version());
  return TOOL_EXIT_DONE;
}

static int run_command(int index, int argc, char **argv) {
  tool_options options;
  int code = tool_options_parse(commands[index].command, argc, argv, &options);
  if (!code && !options.help) code = tool_outputs_check(&options);
  if (!code) code = options.help ? print_command_help(index) : commands[index].run(&options);
  tool_options_free(&options);
  return code;
}

static int run_line(int argc, char **argv) {
  if (argc < 2) return tool_usage(NULL, "no command: expected devices, profile, plan, run, bench or tune");
  if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help();
  if (strcmp(argv[1], "--version") == 0) return print_version();
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(argv[1], commands[i].name) == 0) return run_command(i, argc, argv);
  return tool_usage(NULL, "unknown command '%s', expected devices, profile, plan, run, bench or tune",
                    argv[1]);
}

/* Ranks with a right line would wait in MPI for one with a wrong line; unless their command needs no MPI. */
static void tell_ranks(int argc, char **argv) {
  for (int i = 0; i < COMMANDS; i++)
    if (argc > 1 && strcmp(argv[1], commands[i].name) == 0 &&
        !(commands[i].command & (TOOL_PROFILE | TOOL_RUN)))
      return;
  tool_team_tell(tool_usage_text());
}

int main(int argc, char **argv) {
  tool_standard_files_open();
  tool_stop_on_hangup();
  signal(SIGXFSZ, SIG_IGN); /* a file that grows above the limit is a write that fails */
  /* PoCL compiles a kernel for its binary, and again for each size of work-group; each has one size here. */
  setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", 0);
  tool_launch_guard();
  int code = run_line(argc, argv);
  if (code == TOOL_EXIT_USAGE) tell_ranks(argc, argv);
  return tool_stdout_finish(code);
}
