/* comm/schedule_choice.h: which algorithm. Inside schedule*.c only. */
#ifndef TSR_COMM_SCHEDULE_CHOICE_H
#define TSR_COMM_SCHEDULE_CHOICE_H

#include "comm/schedule_round.h"

/* Of member i of those that take part. */
int tsr_choice_host(const tsr_collective_options *options, int i);
/* What options->algorithm stands for; never NULL. */
const tsr_schedule_algorithm *tsr_choice_resolve(const tsr_collective_options *options);

#endif
