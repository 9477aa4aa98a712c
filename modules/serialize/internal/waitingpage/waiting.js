
'use strict';

const page = JSON.parse(document.currentScript.previousElementSibling.textContent);
const texts = page.Text;
let askLimit = 10000;      // milliseconds until an answer, at most
const spokenEvery = 10000; // milliseconds between two announcements, at least
let spoken = 0;            // when the place was announced

function set(name, text) {
	for (const e of document.querySelectorAll(`[data-waiting="${name}"]`)) if (e.textContent !== text) e.textContent = text;
}

const pause = seconds => new Promise(done => setTimeout(done, 1000 * seconds));

// leave is for what may be the same after a reload: then the page comes again as it does
// without JavaScript. The request names this page as its referrer. By that, the server
// recognises browsers that refuse cookies.
async function leave() {
	if (performance.now() < 3000) await pause(page.Refresh);
	location.replace(location.href.split('#')[0]);
}

// ask returns the server's answer, or null if it is another server's, or leads elsewhere. Its
// error is a TypeError if there is no connection.
async function ask() {
	// text/html is for servers that choose by it which requests stand in the queue.
	const headers = {'Accept': 'text/html', 'Orderly-Place': 'ask'};
	const answer = await fetch(location.href, {headers, cache: 'no-store', redirect: 'manual', signal: AbortSignal.timeout(askLimit)});
	if (answer.headers.get('Content-Type') === 'application/vnd.orderly.place+json') return answer.json();
	if (answer.status >= 500) throw new Error('the server may be starting');
	return null;
}

// moment is a time of the reader's place.
function moment(text) {
	return new Intl.DateTimeFormat(page.Lang, {dateStyle: 'long', timeStyle: 'short'}).format(new Date(text));
}

// span is a time in words, rounded by less than the guess may be off.
function span(seconds) {
	const [unit, size, step] = seconds < 10 ? ['second', 1, 1] : seconds < 100 ? ['second', 1, 5] : seconds < 6000 ? ['minute', 60, 1] : ['hour', 3600, .5];
	const words = new Intl.NumberFormat(page.Lang, {style: 'unit', unit, unitDisplay: 'long'});
	return words.format(step * Math.round(seconds / size / step));
}

function show({number, paused, wait, opens, listed}) {
	askLimit = opens ? 45000 : 10000; // an answer before the opening is late on purpose
	const place = opens ? texts.opens.replace('%s', moment(opens)) : number > 1 ? texts.number.replace('%d', number) : number ? texts.next : texts.joining;
	document.title = (number ? `(${number}) ` : '') + texts.heading;
	set('place', place);
	set('estimate', opens ? texts.draw : paused ? texts.paused : wait > 0 ? texts.about.replace('%s', span(wait)) : '');
	set('listed', listed ? texts.listed.replace('%d', listed) : '');
	set('state', '');
	if (Date.now() - spoken > spokenEvery) {
		spoken = Date.now();
		set('spoken', place);
	}
}

// follow asks again as soon as it has an answer. The server answers after two seconds, or
// when the turn has come: a timer would be late in a tab that is not looked at.
async function follow() {
	for (let fails = 0, known = false; ;) {
		try {
			const data = await ask();
			if (data?.gone && known) return location.reload(); // this browser does send its cookie
			if (!data || data.gone) return leave();
			if (data.turn) break;
			show(data);
			fails = 0;
			known = true;
			if (data.ask) await pause(data.ask);
		} catch (error) {
			fails++;
			// Without the page's handler, this request may stand in the queue itself. Without a
			// connection, a reload would lead to the browser's own error page, which stays.
			if (error.name === 'TimeoutError' && navigator.onLine || fails > 10 && !(error instanceof TypeError)) return leave();
			set('state', texts.offline);
			await pause(fails < 5 ? fails / 5 : 2);
		}
	}
	set('state', texts.turn);
	location.reload();
}

addEventListener('load', () => {
	show(page);
	window.stop(); // the reload by Refresh, which is for browsers without JavaScript
	follow();
});
addEventListener('pageshow', event => { if (event.persisted) location.reload(); });
