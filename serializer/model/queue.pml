/*
 * The lock-file queue, reduced to what its order depends on: tickets and their words, the
 * guard, crashes, reaping, timeouts, and hand-overs within a process and between processes.
 *
 * Three processes have a request each. With PAIR, there are two processes, one of which
 * has two requests. Each request arrives ROUNDS times. At any moment, up to CRASHES
 * processes are killed, another program removes up to REMOVALS lock files and replaces the
 * guard SWAPS times, and the queue is paused and resumed PAUSES times. With DROPS, a waiter
 * behind another ticket is superseded as soon as a third one waits behind it.
 *
 * Spin tries every order in which the steps can happen, and checks:
 *
 *   mutual exclusion   an assertion on entry: nobody else is inside
 *   order              an assertion on entry: the number is greater than those of
 *                      all tickets that entered before
 *   superseding        an assertion: the oldest waiter is the one that is superseded
 *   no lost wake-up    no invalid end state: every waiter enters, gives up or is
 *                      killed. There is no safety net: a process syncs only when it is
 *                      notified of a change.
 *
 * One system call is one atomic step, and so is what happens under the engine's mutex.
 * Steps are merged where no other process can see the state between them, and a holder is
 * inside until it leaves the queue of its process.
 * Notifications are complete and in order, as in inotify's queue. A process follows the
 * directory from its first sync on.
 *
 * Each of these makes the model wrong on purpose, and Spin must report it:
 *
 *   NOGUARD      tickets are issued without the guard
 *   CHECKEARLY   the guard's path is checked before the file is linked, not after
 *   NOREAP       nobody reaps the tickets of dead owners
 *   WATCHLATE    the watch is set after the directory is listed, not before
 *   NOWORD       a ticket whose file is gone has left, whichever program removed it
 *   WORDLATE     the word is written after the file is linked, not before
 *   NOAUDIT      a process does not look in the words for tickets without a file
 *   NORECHECK    an owner does not check whether the ticket was over when it put its file back
 *   NORESUME     processes are not notified when the queue is resumed
 *   DROPSECOND   the ticket behind the oldest waiter is superseded
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
#ifndef SWAPS
#define SWAPS 0
#endif
#ifndef PAUSES
#define PAUSES 0
#endif

/* OF is the process of a ticket. */
#ifdef PAIR
#define OF(t) ((t) == 2 -> 0 : (t))
#else
#define OF(t) (t)
#endif

#define NONE 255 /* no guard is open yet */
#if SWAPS
#define FIRST NONE
#else
#define FIRST 0 /* the only one */
#endif

/* States of a word. */
#define CLEARED 0
#define WAITING 1
#define LEAVING 2

typedef tickets { byte number[TICKETS] }

byte guard[SWAPS + 1];   /* the holder of each guard that there ever was: a ticket plus 1 */
byte path;               /* the guard at the path */
byte open[PROCS] = FIRST; /* the guard that a process has open */
byte last;               /* the last number: the recorded one, or the clock */
byte number[TICKETS];    /* of each ticket */
byte file[TICKETS];      /* the number of the lock file, or 0 if there is none */
byte word[TICKETS];      /* what the owner file says */
bool joined[TICKETS];    /* the ticket is in the queue of its process */
bool alive[PROCS] = true;
bool follows[PROCS];     /* the process has set its watch */
bool audited[PROCS];     /* and has then found every ticket that stands */
bool changed[PROCS];     /* there is a change that the process has not synced */
tickets event[PROCS];    /* files that have appeared since the watch was set */
tickets queue[PROCS];    /* all tickets that a process knows */
bool paused;             /* a pause's file exists */
bool obeys[PROCS];       /* the process has seen the pause */
byte inside;             /* the holder: a ticket plus 1 */
byte entered;            /* the greatest number that was inside */

/* STANDS: the ticket's owner is alive, and its word says that the ticket is out. */
#ifdef NOWORD
#define STANDS(t) false
#else
#define STANDS(t) (word[t] == WAITING && alive[OF(t)])
#endif

/* BUSY: one of the process's tickets waits, is inside, or is being issued. Only then does
 * it matter that the process is notified. */
#define MINE(p, t) (OF(t) == p && (joined[t] || guard[0] == t + 1 || SWAPS > 0 && guard[SWAPS] == t + 1))
#define BUSY(p) (alive[p] && (MINE(p, 0) || MINE(p, 1) || MINE(p, 2)))

/* notify lets all processes know of a change in the directory. */
inline notify() {
	changed[0] = BUSY(0);
	changed[1] = BUSY(1);
	changed[2] = BUSY(2)
}

/* link makes the file of a ticket. */
inline link(t, n) {
	d_step {
		file[t] = n;
		event[0].number[t] = (follows[0] && OF(t) != 0 -> n : 0);
		event[1].number[t] = (follows[1] && OF(t) != 1 -> n : 0);
		event[2].number[t] = (follows[2] && OF(t) != 2 -> n : 0);
		notify()
	}
}

/* SEEN is the number of a ticket of which the process has ever had an event. A ticket that
 * stands keeps its place without its file. */
#define SEEN(p, t) (file[t] != 0 -> file[t] : (STANDS(t) && number[t] == event[p].number[t] -> number[t] : 0))

/* HEAR syncs one ticket of another process. */
#define HEAR(p, t) queue[p].number[t] = (OF(t) == p -> 0 : SEEN(p, t)); \
	event[p].number[t] = (follows[p] -> queue[p].number[t] : 0)

/* KNOWN: the ticket does not stand, or it is in the queue of the process. */
#if defined(NOWORD) || defined(NOAUDIT)
#define KNOWN(p, t) true
#else
#define KNOWN(p, t) (OF(t) == p || !STANDS(t) || queue[p].number[t] != 0)
#endif
#define AUDITED(p) (audited[p] || KNOWN(p, 0) && KNOWN(p, 1) && KNOWN(p, 2))

/* COMING: the ticket would be known if the process synced now. */
#define COMING(p, t) (KNOWN(p, t) || file[t] != 0)
#define AUDITABLE(p) (COMING(p, 0) && COMING(p, 1) && COMING(p, 2))

inline sync(p) {
#ifdef WATCHLATE
	d_step { HEAR(p, 0); HEAR(p, 1); HEAR(p, 2); obeys[p] = paused };
	d_step {
		changed[p] = false; follows[p] = true;
		event[p].number[0] = queue[p].number[0];
		event[p].number[1] = queue[p].number[1];
		event[p].number[2] = queue[p].number[2]
	}
#else
	d_step { follows[p] = true; changed[p] = false; HEAR(p, 0); HEAR(p, 1); HEAR(p, 2); obeys[p] = paused }
#endif
}

/* rest clears what an idle process knows: its next sync finds it in the events again. */
inline rest(p) {
	changed[p] = false;
	obeys[p] = false;
	queue[p].number[0] = 0;
	queue[p].number[1] = 0;
	queue[p].number[2] = 0
}

/* NUMBER is the number of a ticket in the queue of a process. */
#define NUMBER(p, t) (OF(t) == p -> (joined[t] -> number[t] : 0) : queue[p].number[t])

/* BEFORE: ticket u is before ticket t in the queue of p. */
#define BEFORE(p, u, t) (u != t && NUMBER(p, u) != 0 && NUMBER(p, u) < NUMBER(p, t))

/* TURN: ticket t is the first in the queue of its process, which knows of no pause. */
#define TURN(p, t) (joined[t] && !obeys[p] && !BEFORE(p, 0, t) && !BEFORE(p, 1, t) && !BEFORE(p, 2, t))

/* SUPERSEDED: one ticket is before t, and one behind it. Unless the queue is paused, t and
 * the one behind may not both wait. */
#define AHEAD(p, t) (BEFORE(p, 0, t) + BEFORE(p, 1, t) + BEFORE(p, 2, t))
#define BEHIND(p, t) (BEFORE(p, t, 0) + BEFORE(p, t, 1) + BEFORE(p, t, 2))
#ifdef DROPSECOND
#define SUPERSEDED(p, t) (joined[t] && AHEAD(p, t) == 2)
#else
#define SUPERSEDED(p, t) (joined[t] && AHEAD(p, t) == 1 && BEHIND(p, t) == 1)
#endif

/* OLDER: ticket u is out, and older than t. */
#define OLDER(u, t) (u != t && word[u] == WAITING && number[u] < number[t])

/* remove takes a ticket out of the store. If its file is gone already, the other processes
 * are notified all the same: in reality, they read the words ten times a second. */
inline remove(t) {
	word[t] = LEAVING;
	d_step { file[t] = 0; word[t] = CLEARED; number[t] = 0; notify() }
}

/* take takes the guard that is open. unguard releases it. */
#ifdef NOGUARD
#define take(p, t) open[p] != NONE
#define unguard(p) skip
#else
#define take(p, t) atomic { open[p] != NONE && guard[open[p]] == 0 -> guard[open[p]] = t + 1 }
#define unguard(p) guard[open[p]] = 0
#endif

/* HELD: another process has the guard that is open. Within one, a single goroutine asks. */
#define HELD(p) (open[p] != NONE && guard[open[p]] != 0 && OF(guard[open[p]] - 1) != p)

/* Request arrives and leaves in one process, which can be killed in between. */
proctype Request(byte t) {
	byte p = OF(t);
	byte round;
	{
		do
		:: round == ROUNDS -> break
		:: else ->
			round++;
again:			if
			:: take(p, t)
			:: d_step { HELD(p) && open[p] != path -> open[p] = path }; goto again
			fi;
			sync(p);
			/* After the directory was listed: as long as a ticket stands that is not
			 * in the queue, the guard is released and taken again. */
			do
			:: d_step { AUDITED(p) -> audited[p] = true }; break
			:: !AUDITED(p) ->
				unguard(p);
#ifdef NOGUARD
				AUDITABLE(p);
#else
				atomic { guard[open[p]] == 0 && AUDITABLE(p) -> guard[open[p]] = t + 1 };
#endif
				sync(p)
			od;
#ifdef CHECKEARLY
			if
			:: open[p] != path -> d_step { unguard(p); open[p] = path }; goto again
			:: else
			fi;
#endif
#ifdef WORDLATE
			atomic { last++; number[t] = last };
			link(t, number[t]);
			word[t] = WAITING;
#else
			atomic { last++; number[t] = last; word[t] = WAITING };
			link(t, number[t]);
#endif
#if SWAPS && !defined(CHECKEARLY)
			if
			:: open[p] != path ->
				remove(t);
				d_step { unguard(p); open[p] = path };
				goto again
			:: else
			fi;
#endif
			d_step { joined[t] = true; unguard(p) };
			if
			:: atomic { TURN(p, t) ->
				assert(inside == 0);
				assert(number[t] > entered);
				inside = t + 1;
				entered = number[t] }
#ifdef DROPS
			:: atomic { SUPERSEDED(p, t) -> assert(OLDER(0, t) + OLDER(1, t) + OLDER(2, t) <= 1) }
#endif
			:: t == 0 /* a timeout, or the client disconnects; the other tickets wait for ever */
			fi;
			/* The turn passes within the process first. */
			d_step {
				inside = (inside == t + 1 -> 0 : inside);
				joined[t] = false;
				if
				:: !BUSY(p) -> rest(p)
				:: else
				fi
			};
			remove(t)
		od
	} unless { d_step { !alive[p] -> round = 0 } }
}

/* MISSING: another program has removed the file of a ticket of the process. */
#define MISSING(p, t) (REMOVALS > 0 && OF(t) == p && joined[t] && word[t] == WAITING && file[t] == 0)

/* restore puts the file of a ticket back. The ticket may be over in the meantime: then its
 * caller has found no file to remove. */
inline restore(p, t) {
	atomic { MISSING(p, t) -> n = number[t] };
	link(t, n);
#ifndef NORECHECK
	if
	:: word[t] != WAITING -> d_step { file[t] = 0; notify() }
	:: else
	fi
#endif
	n = 0
}

/* DEAD: the process knows a ticket whose owner has died. */
#define DEAD(p, t) (OF(t) != p && queue[p].number[t] != 0 && !alive[OF(t)])

inline reap(p, t) {
	d_step { DEAD(p, t) -> file[t] = 0; queue[p].number[t] = 0; event[p].number[t] = 0; notify() }
}

/* GOING: the process knows a ticket whose word says that it is leaving. */
#define GOING(p, t) (OF(t) != p && queue[p].number[t] == number[t] && queue[p].number[t] != 0 && word[t] == LEAVING)

inline drop(p, t) {
	d_step { GOING(p, t) && BUSY(p) -> queue[p].number[t] = 0; event[p].number[t] = 0 }
}

/* Monitor is notified of changes while a request of its process waits. */
proctype Monitor(byte p) {
	byte n; /* of the ticket whose file is put back */
	{
#if SWAPS
		open[p] = path;
#endif
end:		do
		:: changed[p] && BUSY(p) -> sync(p)
#if REMOVALS
		:: restore(p, 0)
		:: restore(p, 1)
		:: restore(p, 2)
		:: drop(p, 0)
		:: drop(p, 1)
		:: drop(p, 2)
#endif
#ifndef NOREAP
		:: reap(p, 0)
		:: reap(p, 1)
		:: reap(p, 2)
#endif
		od
	} unless { d_step { !alive[p] -> n = 0 } }
}

/* lose forgets what a dead process knew of a ticket of its own. */
inline lose(p, t) {
	joined[t] = joined[t] && p != OF(t);
	word[t] = (p == OF(t) -> CLEARED : word[t]);
	number[t] = (p == OF(t) -> 0 : number[t])
}

/* kill -9: the kernel releases the locks. A holder in the process is gone. */
inline kill(p) {
	d_step {
		left > 0 && alive[p];
		left--;
		alive[p] = false;
		rest(p);
		follows[p] = false;
		audited[p] = false;
		event[p].number[0] = 0;
		event[p].number[1] = 0;
		event[p].number[2] = 0;
		lose(p, 0);
		lose(p, 1);
		lose(p, 2);
		if
		:: open[p] != NONE && guard[open[p]] != 0 && OF(guard[open[p]] - 1) == p -> guard[open[p]] = 0
		:: else
		fi;
		if
		:: inside != 0 && OF(inside - 1) == p -> inside = 0
		:: else
		fi;
		notify()
	}
}

/* Remover is another program, or a person, that removes lock files and the guard. */
proctype Remover() {
	byte left = REMOVALS;
end:	do
	:: d_step { left > 0 && file[0] != 0 -> file[0] = 0; left--; notify() }
	:: d_step { left > 0 && file[1] != 0 -> file[1] = 0; left--; notify() }
	:: d_step { left > 0 && file[2] != 0 -> file[2] = 0; left--; notify() }
	:: d_step { path < SWAPS -> path++ }
	od
}

/* Operator pauses the queue, and finally resumes it. */
proctype Operator() {
	byte left = PAUSES;
end:	do
	:: left > 0 ->
		d_step { paused = true; left--; notify() };
#ifdef NORESUME
		paused = false
#else
		d_step { paused = false; notify() }
#endif
	od
}

proctype Killer() {
	byte left = CRASHES;
end:	do
	:: kill(0)
	:: kill(1)
#ifndef PAIR
	:: kill(2)
#endif
	od
}

init {
	atomic {
		run Request(0); run Request(1); run Request(2);
		run Monitor(0); run Monitor(1);
#ifndef PAIR
		run Monitor(2);
#endif
		run Killer(); run Remover(); run Operator()
	}
}
