
'use strict';

const texts = document.body.dataset;
const spokenEvery = 10000; // milliseconds between two announcements, at least
const headLimit = 10000;   // milliseconds until a stream begins, at most
let current = null;        // the stream that is being read
let done = false;          // the page is being reloaded, or has nothing more to show
let fails = 0;             // streams in a row that have told nothing
let spoken = 0;            // when the place was announced
let seen = document.hidden ? 0 : Date.now(); // when somebody last looked at the page

function set(name, text) {
	for (const e of document.querySelectorAll(`[data-waiting="${name}"]`)) if (e.textContent !== text) e.textContent = text;
}

// unseen is for how many seconds nobody has looked at the page, rounded up: the tab that
// was left must not seem to be looked at later than the one that was gone to.
function unseen() {
	if (!document.hidden) seen = Date.now();
	return Math.max(0, Math.ceil((Date.now() - seen) / 1000));
}

function reload() {
	done = true;
	if (current) current.abort();
	location.reload();
}

// reloadLater is for what may be the same after a reload: then the page comes again as
// it does without JavaScript.
function reloadLater() {
	done = true;
	setTimeout(reload, 1000 * (Number(texts.refresh) || 5));
}

// The events of the server.
const heard = {
	place(data) {
		fails = 0;
		document.title = data.title;
		set('place', data.place);
		set('estimate', data.estimate);
		set('state', '');
		if (Date.now() - spoken > spokenEvery) {
			spoken = Date.now();
			set('spoken', data.place);
		}
	},
	turn() {
		set('state', texts.turn ?? '');
		reload();
	},
	gone() {
		if (performance.now() < 3000) reloadLater();
		else reload();
	},
	used() {
		done = true;
		set('state', texts.used ?? '');
		for (const e of document.querySelectorAll('[data-waiting="again"]')) e.hidden = false;
	},
	elsewhere() {},
};

function hear(text) {
	let name = '', data = '{}';
	for (const line of text.split('\n')) {
		if (line.startsWith('event: ')) name = line.slice(7);
		if (line.startsWith('data: ')) data = line.slice(6);
	}
	if (!done && Object.hasOwn(heard, name)) heard[name](JSON.parse(data));
}

async function read(signal) {
	// If the page was taken away, this request may stand in the queue itself.
	const late = setTimeout(() => { if (!signal.aborted && !done && navigator.onLine) reload(); }, headLimit);
	let answer;
	try {
		// text/html is for servers that choose by it which requests stand in the queue.
		const headers = {'Accept': 'text/html, text/event-stream', 'Orderly-Waiting': `live ${unseen()}`};
		answer = await fetch(location.href, {headers, cache: 'no-store', signal});
	} finally {
		clearTimeout(late);
	}
	if (!answer.ok || !(answer.headers.get('Content-Type') ?? '').startsWith('text/event-stream')) {
		// There may be no queue any more. Errors may be those of a server that starts.
		if (answer.status < 500 || fails > 10) reloadLater();
		throw new Error('no events');
	}
	const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
	for (let rest = '';;) {
		const {value, done: ended} = await reader.read();
		if (ended) return;
		const events = (rest + value).split('\n\n');
		rest = events.pop();
		for (const event of events) hear(event);
	}
}

// follow reads one stream after the other. Each is short, so that the server knows
// that somebody is there.
async function follow() {
	if (done) return;
	if (current) current.abort();
	const mine = current = new AbortController();
	fails++;
	try {
		await read(mine.signal);
	} catch {
		mine.abort();
		if (mine === current && !done) set('state', texts.offline ?? '');
	}
	if (mine !== current || done) return;
	// A timer would be late in a tab that is not looked at.
	if (fails === 0) follow();
	else setTimeout(follow, fails < 10 ? 100 * fails : 2000 + 2000 * Math.random());
}

addEventListener('load', () => {
	window.stop(); // the reload by Refresh, which is for browsers without JavaScript
	follow();
});
// The tab that somebody looks at is the one to go on.
document.addEventListener('visibilitychange', () => {
	seen = Date.now();
	if (!document.hidden) follow();
});
addEventListener('pageshow', event => { if (event.persisted) location.reload(); });
