/* What the examples share: their command line, Ctrl-C, and the wait for a learner. */
#ifndef VEDETTE_COMMAND_H
#define VEDETTE_COMMAND_H

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "../vedette.h"

static vedette *client;

/* Ctrl-C ends the play; a second one ends the program. */
static inline void interrupt(int number) {
    vedette_interrupt(client);
    signal(number, SIG_DFL);
}

/* PROGRAM HOST PORT ID ..., and the folder of keys if there are `most` words. What is wrong ends the program. */
static inline void read_words(int argc, char **argv, int most, const char *usage, vedette_options *options) {
    if (argc < 4 || argc > most) {
        fprintf(stderr, "usage: %s\n", usage);
        exit(2);
    }
    char *end;
    long port = strtol(argv[2], &end, 10);
    if (*end || port < 1 || port > 65533) {
        fprintf(stderr, "%s: PORT is 1 to 65533, not '%s'\n", *argv, argv[2]);
        exit(2);
    }
    options->host = argv[1];
    options->port = (int)port;
    options->id = argv[3];
    options->keys = argc == most ? argv[most - 1] : NULL;
}

static inline vedette *open_client(const vedette_options *options) {
    client = vedette_open(options);
    if (!client) exit(1);
    signal(SIGINT, interrupt);
    signal(SIGTERM, interrupt);
    return client;
}

/* Wait for a run and a model, and say so where that takes its time. */
static inline vedette_result wait_for_learner(const vedette_options *options) {
    vedette_result result;
    for (double seconds = 3; (result = vedette_wait(client, seconds)) == VEDETTE_WAIT; seconds = 30) {
        struct addrinfo *found = NULL;
        int why = getaddrinfo(options->host, NULL, NULL, &found);
        if (found) freeaddrinfo(found);
        fprintf(stderr, "waiting for the learner at %s:%d%s%s\n", options->host, options->port, why ? ": " : "",
                why ? gai_strerror(why) : "");
    }
    return result;
}

#endif
