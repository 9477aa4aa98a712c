/*
 * The lock-file queue, reduced to what its order depends on: tickets, the guard,
 * ledgers, crashes, reaping, timeouts, and hand-overs within a process and between
 * processes.
 *
 * Three processes have a request each. With PAIR, there are two processes, one of which
 * has two requests. Each request arrives ROUNDS times. At any moment, up to CRASHES
 * processes are killed, another program removes up to REMOVALS lock files, and the queue
 * is paused and resumed PAUSES times. With DROPS, a waiter behind another ticket is
 * superseded as soon as a third one waits behind it.
 *
 * Spin tries every order in which the steps can happen, and checks:
 *
 *   mutual exclusion   an assertion on entry: nobody else is inside
 *   order              an assertion on entry: the number is greater than those of
 *                      all tickets that entered before
 *   superseding        an assertion: the oldest waiter is the one that is superseded
 *   no lost wake-up    no invalid end state: every waiter enters, gives up or is
 *                      killed. There is no safety net: a process reads the directory
 *                      only when it is notified of a change.
 *
 * One system call is one atomic step, and so is what happens under the engine's mutex.
 * Notifications are complete and in order, as in inotify's queue. So a sync of all
 * events gives a process the current state of the directory.
 *
 * Each of these makes the model wrong on purpose, and Spin must report it:
 *
 *   NOGUARD      tickets are issued without the guard
 *   FAILOPEN     an error while reading the directory is taken for its end
 *   TRUSTPROBE   a ticket whose owner has not locked it yet counts as dead
 *   NOREAP       nobody reaps the tickets of dead owners
 *   WATCHLATE    the watch is set after the directory is read, not before
 *   NOLEDGER     a ticket whose lock file is gone has left, whichever program removed it
 *   NORESUME     processes are not notified when the queue is resumed
 *   DROPSECOND   the ticket behind the oldest waiter is superseded
 *   NOAUDIT      a process does not search the ledgers for tickets that it never saw
 *
 * FAILOPEN and TRUSTPROBE do harm only together with NOLEDGER, because the ledgers name
 * a ticket that was not seen, or whose file was removed.
 */

#define PROCS   3
#define TICKETS 3
#ifndef ROUNDS
#define ROUNDS  1
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef REMOVALS
#define REMOVALS 0
#endif

/* OF is the process of a ticket. */
#ifdef PAIR
#define OF(t) ((t) == 2 -> 0 : (t))
#else
#define OF(t) (t)
#endif
#ifndef PAUSES
#define PAUSES 0
#endif

typedef tickets { byte number[TICKETS] }

byte guard;              /* its holder: a ticket plus 1 */
byte last;               /* the last number issued, in the guard file */
byte file[TICKETS];      /* the number of the lock file, or 0 if there is none */
bool out[TICKETS];       /* the owner's ledger says so */
bool locked[TICKETS];    /* by the owner; only matters with TRUSTPROBE */
bool alive[PROCS] = true;
bool changed[PROCS];     /* there is a change that the process has not synced */
tickets queue[PROCS];    /* all tickets that a process knows, in order */
bool linked[TICKETS];    /* the lock file was made */
bool paused;             /* a pause's file exists */
bool obeys[PROCS];       /* the process has seen the pause */
byte inside;             /* the holder: a ticket plus 1 */
byte entered;            /* the greatest number that was inside */

/* WAITS: one of the process's own tickets is in its queue. */
#define MINE(p, t) (OF(t) == p && queue[p].number[t] != 0)
#define WAITS(p) (MINE(p, 0) || MINE(p, 1) || MINE(p, 2))

/* LISTENS: the process must be notified of changes. */
#ifdef NOGUARD
#define LISTENS(p) alive[p]
#else
#define LISTENS(p) (alive[p] && (WAITS(p) || guard != 0 && OF(guard - 1) == p))
#endif

/* tell notifies all processes but one of a change in the directory. */
inline tell(p) {
	changed[0] = LISTENS(0) && (changed[0] || p != 0);
	changed[1] = LISTENS(1) && (changed[1] || p != 1);
	changed[2] = LISTENS(2) && (changed[2] || p != 2)
}

/* OUT: the ticket's owner is alive, and its ledger says that the ticket is out. */
#ifdef NOLEDGER
#define OUT(t) false
#else
#define OUT(t) (out[t] && alive[OF(t)])
#endif

/* HEAR syncs one ticket of the directory into the queue, unless it is local. A ticket
 * that is out keeps its place without its file. */
#define HEAR(p, t) queue[p].number[t] = (OF(t) == p || file[t] == 0 && OUT(t) -> queue[p].number[t] : file[t])

/* KNOWN: the ticket is not out, or it is in the queue of the process. */
#if defined(NOLEDGER) || defined(NOAUDIT)
#define KNOWN(p, t) true
#else
#define KNOWN(p, t) (OF(t) == p || !OUT(t) || queue[p].number[t] != 0)
#endif
#define AUDITED(p) (KNOWN(p, 0) && KNOWN(p, 1) && KNOWN(p, 2))

/* COMING: the ticket would be known if the process synced now. */
#define COMING(p, t) (KNOWN(p, t) || file[t] != 0)
#define AUDITABLE(p) (COMING(p, 0) && COMING(p, 1) && COMING(p, 2))

inline sync(p) {
#ifdef WATCHLATE
	d_step { HEAR(p, 0); HEAR(p, 1); HEAR(p, 2); obeys[p] = paused };
	changed[p] = false
#else
	d_step { changed[p] = false; HEAR(p, 0); HEAR(p, 1); HEAR(p, 2); obeys[p] = paused }
#endif
}

/* forget clears knowledge of a process that no longer matters. */
inline forget(p) {
	changed[p] = false;
	obeys[p] = false;
	queue[p].number[0] = 0;
	queue[p].number[1] = 0;
	queue[p].number[2] = 0
}

/* BEFORE: ticket u is before ticket t in the queue of p. */
#define BEFORE(p, u, t) (u != t && queue[p].number[u] != 0 && \
	(queue[p].number[u] < queue[p].number[t] || queue[p].number[u] == queue[p].number[t] && u < t))

/* TURN: ticket t is the first in the queue of its process, which knows of no pause. */
#define TURN(p, t) (linked[t] && !obeys[p] && !BEFORE(p, 0, t) && !BEFORE(p, 1, t) && !BEFORE(p, 2, t))

/* SUPERSEDED: one ticket is before t, and one behind it. Unless the queue is paused, t and
 * the one behind may not both wait. */
#define AHEAD(p, t) (BEFORE(p, 0, t) + BEFORE(p, 1, t) + BEFORE(p, 2, t))
#define BEHIND(p, t) (BEFORE(p, t, 0) + BEFORE(p, t, 1) + BEFORE(p, t, 2))
#ifdef DROPSECOND
#define SUPERSEDED(p, t) (linked[t] && AHEAD(p, t) == 2)
#else
#define SUPERSEDED(p, t) (linked[t] && AHEAD(p, t) == 1 && BEHIND(p, t) == 1)
#endif

/* OLDER: ticket u is out, and older than t. */
#define OLDER(p, u, t) (u != t && file[u] != 0 && file[u] < queue[p].number[t])

/* REMOVED: another program removed the file of a ticket. */
#define REMOVED(t) (REMOVALS > 0 && linked[t] && file[t] == 0)

/* remove strikes the ticket out of the ledger, and then removes its lock file. If the file
 * is gone already, the other processes are notified all the same. In reality, they read
 * the ledgers ten times a second. */
inline remove(p, t) {
	out[t] = false;
	d_step { file[t] = 0; locked[t] = false; tell(p) }
}

/* Request arrives and leaves in one process, which can be killed in between. */
proctype Request(byte t) {
	byte p = OF(t);
	byte round;
	{
		do
		:: round == ROUNDS -> break
		:: else ->
			round++;
#ifndef NOGUARD
			atomic { guard == 0 -> guard = t + 1 };
#endif
#ifdef FAILOPEN
			if
			:: sync(p)
			:: skip
			fi;
#else
			sync(p);
#endif
			/* As long as a ledger has a ticket that is not in the queue, the guard is
			 * released and taken again. */
			do
			:: AUDITED(p) -> break
			:: !AUDITED(p) ->
#ifndef NOGUARD
				guard = 0;
				atomic { guard == 0 && AUDITABLE(p) -> guard = t + 1 };
#endif
				sync(p)
			od;
			skip; /* a loop may not end in a d_step */
			d_step { last++; queue[p].number[t] = last; out[t] = true };
			d_step { file[t] = queue[p].number[t]; tell(p) };
#ifdef TRUSTPROBE
			locked[t] = true;
#endif
			d_step {
				linked[t] = true;
#ifndef NOGUARD
				guard = 0
#endif
			};
			if
			:: atomic { TURN(p, t) ->
				assert(inside == 0);
				assert(queue[p].number[t] > entered);
				inside = t + 1;
				entered = queue[p].number[t] };
				if
				:: REMOVED(t) -> d_step { file[t] = queue[p].number[t]; tell(p) }
				:: true
				fi;
				inside = 0
			:: REMOVED(t) && !TURN(p, t) /* refused */
#ifdef DROPS
			:: atomic { SUPERSEDED(p, t) -> assert(OLDER(p, 0, t) + OLDER(p, 1, t) + OLDER(p, 2, t) <= 1) }
#endif
			:: t == 0 /* a timeout, or the client disconnects; the other tickets wait for ever */
			fi;
			/* The turn passes within the process first. */
			d_step {
				queue[p].number[t] = 0;
				linked[t] = false;
				if
				:: !LISTENS(p) -> forget(p)
				:: else
				fi
			};
			remove(p, t)
		od
	} unless { d_step { !alive[p] -> round = 0 } }
}

/* DEAD: the process knows a ticket whose owner has died. */
#ifdef TRUSTPROBE
#define DEAD(p, t) (OF(t) != p && queue[p].number[t] != 0 && file[t] == queue[p].number[t] && (!alive[OF(t)] || !locked[t]))
#else
#define DEAD(p, t) (OF(t) != p && queue[p].number[t] != 0 && (file[t] == queue[p].number[t] || file[t] == 0) && !alive[OF(t)])
#endif

inline reap(p, t) {
	d_step { DEAD(p, t) -> file[t] = 0; locked[t] = false; queue[p].number[t] = 0; tell(p) }
}

/* Monitor is notified of changes while a request of its process waits. */
proctype Monitor(byte p) {
	{
end:		do
		:: changed[p] && WAITS(p) -> sync(p)
#ifndef NOREAP
		:: reap(p, 0)
		:: reap(p, 1)
		:: reap(p, 2)
#endif
		od
	} unless { !alive[p] }
}

/* kill -9: the kernel releases the locks. A holder in the process is gone. */
inline kill(p) {
	d_step {
		alive[p] = false;
		forget(p);
		linked[0] = linked[0] && p != OF(0);
		linked[1] = linked[1] && p != OF(1);
		linked[2] = linked[2] && p != OF(2);
		if
		:: guard != 0 && OF(guard - 1) == p -> guard = 0
		:: else
		fi;
		if
		:: inside != 0 && OF(inside - 1) == p -> inside = 0
		:: else
		fi
	}
}

/* Remover is another program, or a person, that removes lock files. */
proctype Remover() {
	byte left = REMOVALS;
end:	do
	:: d_step { left > 0 && file[0] != 0 -> file[0] = 0; left--; tell(PROCS) }
	:: d_step { left > 0 && file[1] != 0 -> file[1] = 0; left--; tell(PROCS) }
	:: d_step { left > 0 && file[2] != 0 -> file[2] = 0; left--; tell(PROCS) }
	od
}

/* Operator pauses the queue, and finally resumes it. */
proctype Operator() {
	byte left = PAUSES;
end:	do
	:: left > 0 ->
		d_step { paused = true; left--; tell(PROCS) };
#ifdef NORESUME
		paused = false
#else
		d_step { paused = false; tell(PROCS) }
#endif
	od
}

proctype Killer() {
	byte left = CRASHES;
end:	do
	:: left > 0 && alive[0] -> kill(0); left--
	:: left > 0 && alive[1] -> kill(1); left--
	:: left > 0 && alive[2] -> kill(2); left--
	od
}

init {
	atomic {
		run Request(0); run Request(1); run Request(2);
		run Monitor(0); run Monitor(1); run Monitor(2);
		run Killer(); run Remover(); run Operator()
	}
}
