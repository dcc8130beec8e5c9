/* comm/redistribute_inside.h: what redistribute.c prepares and redistribute_run.c runs. */
#ifndef TSR_COMM_REDISTRIBUTE_INSIDE_H
#define TSR_COMM_REDISTRIBUTE_INSIDE_H

#include "comm/redistribute.h"

/* A rectangle as a part of one view. */
typedef struct tsr_piece {
  int64_t number;   /* of the view */
  int64_t row, col; /* within it */
  int64_t rows, cols;
  int distance; /* of the partner, round the group in the direction of its flow */
  size_t order; /* in which it was found */
} tsr_piece;

/* Pieces of one partner, in the order in which they travel. */
typedef struct tsr_stream {
  int peer;
  size_t first, count; /* of pieces */
  int64_t elements;
} tsr_stream;

enum { TSR_SLOTS = 2 };

/* The next element to travel. */
typedef struct tsr_cursor {
  size_t stream, piece; /* piece counts from the beginning of all */
  int64_t element;      /* of the piece */
  int64_t left;         /* elements of the stream */
} tsr_cursor;

/* A message in flight. */
typedef struct tsr_slot {
  tsr_request request;
  tsr_cursor begin;
  int64_t elements;
  bool direct; /* it lies where it belongs */
} tsr_slot;

/* All that goes out, or all that comes in. */
typedef struct tsr_flow {
  tsr_stream *streams;
  tsr_piece *pieces;
  size_t stream_count, piece_count, piece_capacity;
  /* of a run */
  tsr_cursor cursor;
  tsr_slot slots[TSR_SLOTS];
  int oldest, in_flight;
} tsr_flow;

struct tsr_redistribution {
  tsr_group *group;
  int member;
  bool column_major;
  int64_t element_bytes, message_elements;
  tsr_flow out, in;
  tsr_piece *copies_from, *copies_to; /* [copy_count]: what stays with the member */
  size_t copy_count, from_capacity, to_capacity;
  uint64_t sent_bytes;
  tsr_redistribution_memory memory; /* of a run */
};

#endif
