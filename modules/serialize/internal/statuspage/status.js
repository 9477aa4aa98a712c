
'use strict';

const interval = 2000; // milliseconds between two looks, at least
const page = document.documentElement;
const state = document.getElementById('state');
const queues = document.getElementById('queues');
const text = document.getElementById('filter-text');
const message = document.getElementById('message');

// morph makes a node like another one, and changes no more than it must: what is
// unfolded, focused, selected or scrolled stays so.
function morph(node, wanted) {
	if (node.nodeType !== Node.ELEMENT_NODE) {
		if (node.data !== wanted.data) node.data = wanted.data;
		return;
	}
	for (const {name} of [...node.attributes]) if (name !== 'open' && !wanted.hasAttribute(name)) node.removeAttribute(name);
	for (const {name, value} of wanted.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
	morphChildren(node, wanted);
}

// morphChildren keeps children by their id, and those without one by their place.
function morphChildren(node, wanted) {
	const named = new Map([...node.children].filter(e => e.id).map(e => [e.id, e]));
	let at = node.firstChild;
	for (const child of [...wanted.childNodes]) {
		const same = child.id ? named.get(child.id) : at && !at.id && at.nodeName === child.nodeName ? at : null;
		if (!same) {
			node.insertBefore(child, at);
			continue;
		}
		if (same === at) at = at.nextSibling;
		else node.insertBefore(same, at);
		morph(same, child);
	}
	while (at) {
		const rest = at;
		at = at.nextSibling;
		rest.remove();
	}
}

function show(next) {
	const focused = document.activeElement;
	document.title = next.title;
	morphChildren(queues, next.getElementById('queues'));
	// A row that has moved has lost the focus.
	if (focused !== document.activeElement && queues.contains(focused)) focused.focus({preventScroll: true});
}

// say tells whether what is shown is up to date. Only changes are announced.
function say(words, live) {
	if (state.textContent !== words) state.textContent = words;
	state.className = live ? 'soft live' : 'soft stale';
}

let last = new Date(); // when the page was up to date
let current = null;    // the look that is under way

async function look() {
	if (current) current.abort();
	const mine = current = new AbortController();
	try {
		const answer = await fetch(location.href, {
			headers: {Accept: 'text/html'}, cache: 'no-store', signal: AbortSignal.any([mine.signal, AbortSignal.timeout(10000)]),
		});
		if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
		const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
		if (mine !== current) return;
		if (!next.getElementById('queues')) throw new Error('the server answered with another page');
		show(next);
		last = new Date();
		say('live', true);
	} catch (error) {
		if (mine !== current) return; // another look has taken over
		const why = error.name === 'TimeoutError' ? 'the server does not answer' : error.name === 'TypeError' ? 'the server cannot be reached' : error.message;
		say(`not up to date since ${last.toLocaleTimeString()}: ${why}`, false);
	}
}

async function watch() {
	const began = performance.now();
	if (!document.hidden) await look();
	// A page that takes long to make is asked for less often.
	setTimeout(watch, Math.max(interval, 5 * (performance.now() - began)));
}

// act sends what a button stands for.
async function act(button) {
	const {action, queue, token, state} = button.dataset;
	const question = {
		evict: state === 'inside' ?
			`Ticket ${token} is inside. Evicting it cancels its request, or removes the file of another program; the next one enters when its handlers have returned. PHP behind FastCGI goes on in spite of it. Evict it?` :
			`Evict ticket ${token}? Its request is refused at once.`,
		pause: `Pause ${queue}? Nobody enters for ten minutes, or until it is resumed. Requests that wait keep their places; their timeouts go on.`,
		resume: `Resume ${queue}?`,
	}[action];
	if (!confirm(question)) return;
	button.disabled = true;
	message.textContent = '';
	try {
		const order = new URLSearchParams({action, queue, token: token || '', for: button.dataset.for || ''});
		const answer = await fetch(`${location.pathname}?${order}`, {method: 'POST'});
		const told = await answer.json().catch(() => ({}));
		if (!answer.ok) throw new Error(told.error || `the server answered ${answer.status}`);
		if (told.result) message.textContent = `Ticket ${token}: ${told.result}.`;
	} catch (error) {
		const failed = {evict: `Ticket ${token} was not evicted`, pause: `${queue} was not paused`, resume: `${queue} was not resumed`};
		message.textContent = `${failed[action]}: ${error.message}`;
	}
	button.disabled = false;
	look();
}

page.classList.add('js');
say('live', true);
document.addEventListener('visibilitychange', () => { if (!document.hidden) look(); });
document.getElementById('filter').addEventListener('submit', event => event.preventDefault());
text.addEventListener('input', () => {
	const url = new URL(location.href);
	if (text.value) url.searchParams.set('filter', text.value);
	else url.searchParams.delete('filter');
	history.replaceState(null, '', url);
	look();
});
queues.addEventListener('click', event => {
	const button = event.target.closest('button[data-action]');
	if (button) act(button);
});
setTimeout(watch, interval);
