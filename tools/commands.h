/* commands.h: the subcommands. Each returns the exit code of the program. */
#ifndef TOOL_COMMANDS_H
#define TOOL_COMMANDS_H

#include "options.h"

int tool_command_devices(const tool_options *options);
int tool_command_profile(const tool_options *options);
int tool_command_plan(const tool_options *options);
int tool_command_run(const tool_options *options);
int tool_command_bench(const tool_options *options);
int tool_command_tune(const tool_options *options);

#endif
